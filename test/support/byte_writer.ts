/** Little-endian bytes, appended one value after another. */
export class ByteWriter {
  #bytes = new Uint8Array(1024);
  #view = new DataView(this.#bytes.buffer);
  #length = 0;

  /** Bytes written so far. */
  get length(): number {
    return this.#length;
  }

  /** A copy of what was written. */
  toBytes(): Uint8Array<ArrayBuffer> {
    return this.#bytes.slice(0, this.#length);
  }

  u8(value: number): this {
    this.#view.setUint8(this.#grow(1), value);
    return this;
  }

  i8(value: number): this {
    this.#view.setInt8(this.#grow(1), value);
    return this;
  }

  u16(value: number): this {
    this.#view.setUint16(this.#grow(2), value, true);
    return this;
  }

  i16(value: number): this {
    this.#view.setInt16(this.#grow(2), value, true);
    return this;
  }

  u32(value: number): this {
    this.#view.setUint32(this.#grow(4), value, true);
    return this;
  }

  i32(value: number): this {
    this.#view.setInt32(this.#grow(4), value, true);
    return this;
  }

  u64(value: number | bigint): this {
    this.#view.setBigUint64(this.#grow(8), BigInt(value), true);
    return this;
  }

  i64(value: number | bigint): this {
    this.#view.setBigInt64(this.#grow(8), BigInt(value), true);
    return this;
  }

  f32(value: number): this {
    this.#view.setFloat32(this.#grow(4), value, true);
    return this;
  }

  f64(value: number): this {
    this.#view.setFloat64(this.#grow(8), value, true);
    return this;
  }

  /** Raw bytes, without a length. */
  bytes(value: Uint8Array): this {
    const at = this.#grow(value.length);
    this.#bytes.set(value, at);
    return this;
  }

  /** Zero bytes up to the next multiple of `alignment`. */
  align(alignment: number): this {
    this.#grow((alignment - this.#length % alignment) % alignment);
    return this;
  }

  #grow(count: number): number {
    const start = this.#length;
    this.#length += count;
    if (this.#length > this.#bytes.length) {
      const larger = new Uint8Array(Math.max(this.#length, 2 * this.#bytes.length));
      larger.set(this.#bytes.subarray(0, start));
      this.#bytes = larger;
      this.#view = new DataView(larger.buffer);
    }
    return start;
  }
}
