/**
 * Reads and writes little-endian fields.
 *
 * Contract: `ByteReader` throws `MalformedRecord` for a read beyond the end, and nothing else. Strings are UTF-8 with a
 * length in front. Bound: `ByteWriter` writes into one shared buffer of `SCRATCH_BYTES`, grown to the largest record;
 * `end` copies the result out of it.
 */

export class MalformedRecord extends Error {}

/** Undefined if the record is malformed. */
export function orDamaged<T>(decode: () => T): T | undefined {
  try {
    return decode();
  } catch (error) {
    if (!(error instanceof MalformedRecord)) throw error;
    return undefined;
  }
}

const U16 = 2 ** 16;
const U32 = 2 ** 32;
/** The length that stands for an absent string. */
const ABSENT = U16 - 1;
const SCRATCH_BYTES = 64 * 1024;

export class ByteReader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get rest(): number {
    return this.#bytes.length - this.#at;
  }

  #take(bytes: number): number {
    const at = this.#at;
    if (at + bytes > this.#bytes.length) throw new MalformedRecord('a field ends beyond its record');
    this.#at = at + bytes;
    return at;
  }

  u8(): number {
    return this.#bytes[this.#take(1)]!;
  }

  u16(): number {
    return this.#bytes.readUInt16LE(this.#take(2));
  }

  u32(): number {
    return this.#bytes.readUInt32LE(this.#take(4));
  }

  /** An integer below 2 ** 48. */
  u48(): number {
    const at = this.#take(6);
    return this.#bytes.readUInt32LE(at) + this.#bytes.readUInt16LE(at + 4) * U32;
  }

  f64(): number {
    return this.#bytes.readDoubleLE(this.#take(8));
  }

  /** A view of the next bytes. */
  bytes(count: number): Buffer {
    const at = this.#take(count);
    return this.#bytes.subarray(at, at + count);
  }

  text(): string {
    const text = this.optionalText();
    if (text === undefined) throw new MalformedRecord('a required text is absent');
    return text;
  }

  optionalText(): string | undefined {
    const length = this.u16();
    if (length === ABSENT) return undefined;
    const at = this.#take(length);
    return this.#bytes.toString('utf8', at, at + length);
  }

  /** A list with its length in front. `bytes_min`: of one element, so that a wrong length allocates nothing. */
  list<T>(bytes_min: number, one: () => T): T[] {
    const count = this.u16();
    if (count * bytes_min > this.rest) throw new MalformedRecord('a list ends beyond its record');
    const list: T[] = [];
    for (let index = 0; index < count; index++) list.push(one());
    return list;
  }

  end(): void {
    if (this.rest !== 0) throw new MalformedRecord('a record has bytes after its last field');
  }
}

let scratch = Buffer.allocUnsafeSlow(SCRATCH_BYTES);

/** One at a time: `begin`, fields, `end`. */
export class ByteWriter {
  #at = 0;

  begin(): this {
    this.#at = 0;
    return this;
  }

  #room(bytes: number): number {
    const at = this.#at;
    if (at + bytes > scratch.length) {
      const grown = Buffer.allocUnsafeSlow(Math.max(2 * scratch.length, at + bytes));
      scratch.copy(grown, 0, 0, at);
      scratch = grown;
    }
    this.#at = at + bytes;
    return at;
  }

  u8(value: number): this {
    const at = this.#room(1);
    scratch[at] = value;
    return this;
  }

  u16(value: number): this {
    const at = this.#room(2);
    scratch.writeUInt16LE(value, at);
    return this;
  }

  u32(value: number): this {
    const at = this.#room(4);
    scratch.writeUInt32LE(value, at);
    return this;
  }

  /** A time before 1970 is written as 0. */
  u48(value: number): this {
    const at = this.#room(6);
    const written = Math.max(0, value);
    const high = Math.floor(written / U32);
    scratch.writeUInt32LE(written - high * U32, at);
    scratch.writeUInt16LE(high, at + 4);
    return this;
  }

  f64(value: number): this {
    const at = this.#room(8);
    scratch.writeDoubleLE(value, at);
    return this;
  }

  bytes(value: Uint8Array): this {
    const at = this.#room(value.length);
    scratch.set(value, at);
    return this;
  }

  /** At most 65534 bytes: the caller's limits are below. */
  text(value: string | undefined): this {
    if (value === undefined) return this.u16(ABSENT);
    const length = Buffer.byteLength(value);
    if (length >= ABSENT) throw new RangeError(`a text of ${length} bytes does not fit a record`);
    const at = this.#room(2 + length);
    scratch.writeUInt16LE(length, at);
    scratch.write(value, at + 2, length, 'utf8');
    return this;
  }

  /** A list that `ByteReader.list` reads. */
  list<T>(values: readonly T[], one: (value: T) => void): this {
    if (values.length >= U16) throw new RangeError(`a list of ${values.length} does not fit a record`);
    this.u16(values.length);
    for (const value of values) one(value);
    return this;
  }

  end(): Buffer {
    const bytes = Buffer.allocUnsafe(this.#at);
    scratch.copy(bytes, 0, 0, this.#at);
    return bytes;
  }
}
