import type { KvCache, StateCache } from "../src/backend.ts";
import type { NativeHandles } from "./native_handles.ts";

/** The KV pages of one layer on a native device. */
export class NativeKvCache implements KvCache {
  readonly handle: number;
  readonly pageBytes: number;
  readonly #native: NativeHandles;

  constructor(native: NativeHandles, handle: number, pageBytes: number) {
    this.#native = native;
    this.handle = handle;
    this.pageBytes = pageBytes;
  }

  copyPage(from: number, to: number): void {
    const { forge_kv_copy_page } = this.#native.symbols;
    this.#native.check(forge_kv_copy_page(this.handle, from, to), "copying a KV page", this.handle);
  }

  readPage(page: number): Uint8Array<ArrayBuffer> {
    const { forge_kv_read_page } = this.#native.symbols;
    const data = new Uint8Array(this.pageBytes);
    const status = forge_kv_read_page(this.handle, page, data, BigInt(data.byteLength));
    this.#native.check(status, "reading a KV page", this.handle);
    return data;
  }

  writePage(page: number, data: Uint8Array<ArrayBuffer>): void {
    const { forge_kv_write_page } = this.#native.symbols;
    const status = forge_kv_write_page(this.handle, page, data, BigInt(data.byteLength));
    this.#native.check(status, "writing a KV page", this.handle);
  }
}

/** The recurrent state of one operation of one layer on a native device. */
export class NativeStateCache implements StateCache {
  readonly handle: number;
  readonly slotBytes: number;
  readonly #native: NativeHandles;

  constructor(native: NativeHandles, handle: number, slotBytes: number) {
    this.#native = native;
    this.handle = handle;
    this.slotBytes = slotBytes;
  }

  copySlot(from: number, to: number): void {
    const { forge_state_copy_slot } = this.#native.symbols;
    this.#native.check(
      forge_state_copy_slot(this.handle, from, to),
      "copying a recurrent state",
      this.handle,
    );
  }

  readSlot(slot: number): Uint8Array<ArrayBuffer> {
    const { forge_state_read_slot } = this.#native.symbols;
    const data = new Uint8Array(this.slotBytes);
    const status = forge_state_read_slot(this.handle, slot, data, BigInt(data.byteLength));
    this.#native.check(status, "reading a recurrent state", this.handle);
    return data;
  }

  writeSlot(slot: number, data: Uint8Array<ArrayBuffer>): void {
    const { forge_state_write_slot } = this.#native.symbols;
    const status = forge_state_write_slot(this.handle, slot, data, BigInt(data.byteLength));
    this.#native.check(status, "writing a recurrent state", this.handle);
  }
}
