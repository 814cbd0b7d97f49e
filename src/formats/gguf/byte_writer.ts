/** Appends little-endian values to a growing buffer. */
export class ByteWriter {
  #bytes = new Uint8Array(1024);
  #view = new DataView(this.#bytes.buffer);
  #length = 0;

  /** Returns a copy of the bytes written so far. */
  toBytes(): Uint8Array<ArrayBuffer> {
    return this.#bytes.slice(0, this.#length);
  }

  u8(value: number): this {
    const at = this.#grow(1);
    this.#view.setUint8(at, whole(value, 0, 0xff));
    return this;
  }

  i8(value: number): this {
    const at = this.#grow(1);
    this.#view.setInt8(at, whole(value, -0x80, 0x7f));
    return this;
  }

  u16(value: number): this {
    const at = this.#grow(2);
    this.#view.setUint16(at, whole(value, 0, 0xffff), true);
    return this;
  }

  i16(value: number): this {
    const at = this.#grow(2);
    this.#view.setInt16(at, whole(value, -0x8000, 0x7fff), true);
    return this;
  }

  u32(value: number): this {
    const at = this.#grow(4);
    this.#view.setUint32(at, whole(value, 0, 0xffffffff), true);
    return this;
  }

  i32(value: number): this {
    const at = this.#grow(4);
    this.#view.setInt32(at, whole(value, -0x80000000, 0x7fffffff), true);
    return this;
  }

  u64(value: number | bigint): this {
    const at = this.#grow(8);
    this.#view.setBigUint64(at, BigInt(value), true);
    return this;
  }

  i64(value: number | bigint): this {
    const at = this.#grow(8);
    this.#view.setBigInt64(at, BigInt(value), true);
    return this;
  }

  f32(value: number): this {
    const at = this.#grow(4);
    this.#view.setFloat32(at, value, true);
    return this;
  }

  f64(value: number): this {
    const at = this.#grow(8);
    this.#view.setFloat64(at, value, true);
    return this;
  }

  /** Appends raw bytes, without a length. */
  bytes(value: Uint8Array): this {
    const at = this.#grow(value.length);
    this.#bytes.set(value, at);
    return this;
  }

  /** Appends zero bytes up to the next multiple of `alignment`. */
  align(alignment: number): this {
    this.#grow((alignment - this.#length % alignment) % alignment);
    return this;
  }

  /** Extends the buffer, which may replace the view, and returns the offset of the new bytes. */
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

/** Returns a whole number that fits its type. */
function whole(value: number, least: number, most: number): number {
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw new RangeError(`${value} is not a whole number from ${least} to ${most}`);
}
