/**
 * Gathers what one write puts on disk: records with their headers and places, as pieces that follow one another.
 *
 * Promise: `bytes` is what the pieces take together, and `seq` the largest number among the records. Payloads that are not
 * small are not copied: they must stay as they are until the write has ended.
 * Bound: small records are copied into memory that is used again for the next write, `BatchMemory.BYTES`; what does not fit
 * there gets memory of its own.
 */
import { sched } from '@ron/kernel';
import {
  encodeHeader,
  HEADER_BYTES,
  recordBytes,
  type Appended,
  type HeaderInit,
  type Position,
  type RecordInput,
} from './record.ts';

/** Records up to this size are copied together with their header: one piece of a write instead of four. */
const COPY_BYTES_MAX = 16 * 1024;
const ZEROS = Buffer.alloc(HEADER_BYTES);

/** Where small records are put together. Of one write at a time: what it held is gone when the next begins. */
export class BatchMemory {
  static readonly BYTES = 512 * 1024;
  #buffer: Buffer | undefined;

  /** Made when it is first needed: a log that is only read has none. */
  get buffer(): Buffer {
    this.#buffer ??= Buffer.allocUnsafeSlow(BatchMemory.BYTES);
    return this.#buffer;
  }
}

export class BatchWrite {
  seq: number;
  bytes = 0;
  readonly #segment: number;
  readonly #start: number;
  readonly #salt: number;
  readonly #time_s = Math.floor(sched.wall_ms() / 1000) >>> 0;
  readonly #pieces: Uint8Array[] = [];
  readonly #memory: BatchMemory;
  /** What of the memory is used, and from where on it has not become a piece yet. */
  #used = 0;
  #run_start = 0;

  /** `at`: where the first record goes. `seq`: of the last record before. */
  constructor(at: Position, salt: number, seq: number, memory: BatchMemory) {
    this.seq = seq;
    this.#memory = memory;
    this.#salt = salt;
    this.#segment = at.segment;
    this.#start = at.offset;
  }

  add(group: readonly RecordInput[]): readonly Appended[] {
    return group.map((record) => {
      const seq = record.seq ?? this.seq + 1;
      this.seq = Math.max(this.seq, seq);
      const offset = this.#start + this.bytes;
      const time_s = record.time_s ?? this.#time_s;
      this.#put(record, { seq, time_s, salt: this.#salt });
      return { segment: this.#segment, offset, seq, time_s };
    });
  }

  buffers(): readonly Uint8Array[] {
    this.#endRun();
    return this.#pieces;
  }

  /** Small records that follow one another are one piece. */
  #endRun(): void {
    if (this.#used > this.#run_start) this.#pieces.push(this.#memory.buffer.subarray(this.#run_start, this.#used));
    this.#run_start = this.#used;
  }

  #put(record: RecordInput, init: HeaderInit): void {
    const meta_bytes = record.meta?.length ?? 0;
    const body_bytes = record.payload.length + meta_bytes;
    const total = recordBytes(record.payload.length, meta_bytes);
    this.bytes += total;
    if (total <= COPY_BYTES_MAX && this.#used + total <= BatchMemory.BYTES) {
      const { buffer } = this.#memory;
      const body = this.#used + HEADER_BYTES;
      encodeHeader(record, init, buffer, this.#used);
      buffer.set(record.payload, body);
      if (record.meta !== undefined) buffer.set(record.meta, body + record.payload.length);
      buffer.fill(0, body + body_bytes, this.#used + total);

      this.#used += total;
      return;
    }
    this.#endRun();
    const header = Buffer.allocUnsafe(HEADER_BYTES);
    encodeHeader(record, init, header, 0);
    this.#pieces.push(header, record.payload);
    if (record.meta !== undefined && meta_bytes > 0) this.#pieces.push(record.meta);
    const padding = total - HEADER_BYTES - body_bytes;
    if (padding > 0) this.#pieces.push(ZEROS.subarray(0, padding));
  }
}
