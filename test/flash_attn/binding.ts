/**
 * A direct binding of `libflash_attn.so`, for tests and benches; `csrc/flash_attn/flash_attn.h`
 * documents its functions. forge itself uses the library through `libforge_cuda.so`.
 *
 * Device pointers are plain numbers here; this file never dereferences them.
 */
import { ForgeError } from "../../src/errors.ts";

/** `FLASH_ATTN_VERSION` of the header that this file matches. */
export const FLASH_ATTN_VERSION = 6;

/** The functions of the header. */
export const flashAttentionSymbols = {
  flash_attn_version: { parameters: [], result: "u32" },
  flash_attn_status_text: {
    parameters: ["i32"], // flash_attn_status status
    result: "pointer", // const char *
  },
  flash_attn_device_status: { parameters: [], result: "i32" },
  flash_attn_workspace_size: {
    parameters: [
      "u32", // uint32_t function
      "buffer", // const flash_attn_params *params
      "buffer", // uint64_t *bytes
    ],
    result: "i32",
  },
  flash_attn_fwd: { parameters: ["buffer"], result: "i32" }, // const flash_attn_params *params
  flash_attn_varlen_fwd: { parameters: ["buffer"], result: "i32" },
  flash_attn_decode: { parameters: ["buffer"], result: "i32" },
} as const satisfies Deno.ForeignLibraryInterface;

/** The attention functions, in the order of their numbers. */
const flashAttentionFunctions = ["fwd", "varlen_fwd", "decode"] as const;
export type FlashAttentionFunction = (typeof flashAttentionFunctions)[number];

/** The fields of `flash_attn_params`, in order. */
export const paramFields = {
  version: "u32",
  dtype: "u32",
  flags: "u32",
  head_dim: "i32",
  n_heads: "i32",
  n_kv_heads: "i32",
  batch: "i32",
  seqlen_q: "i32",
  seqlen_k: "i32",
  window_left: "i32",
  window_right: "i32",
  scale: "f32",
  softcap: "f32",
  page_size: "i32",
  block_table_stride: "i64",
  block_table: "pointer",
  block_rows: "pointer",
  seqlens_k: "pointer",
  cu_seqlens_q: "pointer",
  cu_seqlens_k: "pointer",
  seqlens_q: "pointer",
  total_q: "i32",
  total_k: "i32",
  q: "pointer",
  k: "pointer",
  v: "pointer",
  out: "pointer",
  k_scales: "pointer",
  v_scales: "pointer",
  lse: "pointer",
  sinks: "pointer",
  q_descale: "pointer",
  k_descale: "pointer",
  v_descale: "pointer",
  descale_batch_stride: "i64",
  descale_head_stride: "i64",
  mask: "pointer",
  mask_pitch: "pointer",
  mask_batch_stride: "i64",
  mask_row_stride: "i64",
  mask_head_stride: "i64",
  mask_key_stride: "i32",
  mask_type: "u32",
  q_batch_stride: "i64",
  q_row_stride: "i64",
  q_head_stride: "i64",
  k_batch_stride: "i64",
  k_row_stride: "i64",
  k_head_stride: "i64",
  v_batch_stride: "i64",
  v_row_stride: "i64",
  v_head_stride: "i64",
  out_batch_stride: "i64",
  out_row_stride: "i64",
  out_head_stride: "i64",
  lse_batch_stride: "i64",
  lse_head_stride: "i64",
  n_splits: "i32",
  kv_dtype: "u32",
  workspace: "pointer",
  workspace_size: "i64",
  stream: "pointer",
} as const satisfies Readonly<Record<string, "u32" | "i32" | "f32" | "i64" | "pointer">>;

type FieldName = keyof typeof paramFields;

/**
 * Parameters of a call; missing fields are 0, except the version, and windows, which are unlimited.
 */
export type FlashAttentionParams = { readonly [name in FieldName]?: number | bigint };

/** Bytes of a field; each is aligned to its size. */
function fieldBytes(name: FieldName): number {
  const type = paramFields[name];
  return type === "i64" || type === "pointer" ? 8 : 4;
}

/** The offset of each field of `flash_attn_params`, and the size of the struct. */
export function paramLayout(): { offsets: ReadonlyMap<string, number>; bytes: number } {
  const offsets = new Map<string, number>();
  let end = 0;
  for (const name of Object.keys(paramFields) as FieldName[]) {
    const bytes = fieldBytes(name);
    end = Math.ceil(end / bytes) * bytes;
    offsets.set(name, end);
    end += bytes;
  }
  return { offsets, bytes: Math.ceil(end / 8) * 8 };
}

/** The struct with the given fields. */
function packParams(params: FlashAttentionParams): Uint8Array<ArrayBuffer> {
  const { offsets, bytes } = paramLayout();
  const buffer = new Uint8Array(bytes);
  const view = new DataView(buffer.buffer);
  const all = { version: FLASH_ATTN_VERSION, window_left: -1, window_right: -1, ...params };
  for (const [name, value] of Object.entries(all) as [FieldName, number | bigint][]) {
    const at = offsets.get(name) ?? 0;
    if (fieldBytes(name) === 8) view.setBigUint64(at, BigInt.asUintN(64, BigInt(value)), true);
    else if (paramFields[name] === "f32") view.setFloat32(at, Number(value), true);
    else view.setUint32(at, Number(value) >>> 0, true);
  }
  return buffer;
}

/** The open library. */
export class FlashAttention implements Disposable {
  #library: Deno.DynamicLibrary<typeof flashAttentionSymbols> | undefined;

  private constructor(library: Deno.DynamicLibrary<typeof flashAttentionSymbols>) {
    this.#library = library;
  }

  /**
   * Opens the library at `path`.
   *
   * @throws {ForgeError} `device` if it cannot be loaded or has another version.
   */
  static open(path: string): FlashAttention {
    let library: Deno.DynamicLibrary<typeof flashAttentionSymbols>;
    try {
      library = Deno.dlopen(path, flashAttentionSymbols);
    } catch (error) {
      if (error instanceof Deno.errors.NotCapable) throw error;
      const reason = error instanceof Error ? error.message : String(error);
      throw new ForgeError("device", `cannot load ${path}: ${reason}`, { cause: error });
    }
    const version = library.symbols.flash_attn_version();
    if (version === FLASH_ATTN_VERSION) return new FlashAttention(library);
    library.close();
    throw new ForgeError(
      "device",
      `${path} is of version ${version}, this forge needs ${FLASH_ATTN_VERSION}; ` +
        `rebuild it with: deno task build --only flash_attn`,
    );
  }

  /** 0 if the current device can run these functions, else a status. */
  deviceStatus(): number {
    return this.#symbols.flash_attn_device_status();
  }

  /** The text of a status. */
  statusText(status: number): string {
    const text = this.#symbols.flash_attn_status_text(status);
    return text === null ? "" : Deno.UnsafePointerView.getCString(text);
  }

  /** Bytes of workspace that a function needs for these parameters. */
  workspaceSize(name: FlashAttentionFunction, params: FlashAttentionParams): number {
    const bytes = new BigUint64Array(1);
    const number = flashAttentionFunctions.indexOf(name);
    this.#check(
      this.#symbols.flash_attn_workspace_size(number, packParams(params), bytes),
      "workspace_size",
    );
    return Number(bytes[0]);
  }

  /** Calls a function and returns the status. */
  call(name: FlashAttentionFunction, params: FlashAttentionParams): number {
    const packed = packParams(params);
    switch (name) {
      case "fwd":
        return this.#symbols.flash_attn_fwd(packed);
      case "varlen_fwd":
        return this.#symbols.flash_attn_varlen_fwd(packed);
      case "decode":
        return this.#symbols.flash_attn_decode(packed);
    }
  }

  /** Calls a function. @throws {ForgeError} `device` if the call fails. */
  run(name: FlashAttentionFunction, params: FlashAttentionParams): void {
    this.#check(this.call(name, params), name);
  }

  [Symbol.dispose](): void {
    this.#library?.close();
    this.#library = undefined;
  }

  get #symbols(): Deno.DynamicLibrary<typeof flashAttentionSymbols>["symbols"] {
    if (this.#library === undefined) {
      throw new ForgeError("device", "the flash attention library is closed");
    }
    return this.#library.symbols;
  }

  #check(status: number, operation: string): void {
    if (status === 0) return;
    throw new ForgeError("device", `flash_attn_${operation}: ${this.statusText(status)}`);
  }
}
