/**
 * Builds the buffers of one vectored write: records with their headers, back to back.
 *
 * Contract: `bytes` is the total length, and `seq` the largest number among the records. Large payloads are not copied: they
 * must not change until the write has ended.
 * Bound: small records are copied into one reused buffer of `BatchMemory.BYTES`. Overflow: records that do not fit are
 * written from their own memory.
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

/** Records up to this size are copied together with their header: one buffer instead of four. */
const COPY_BYTES_MAX = 16 * 1024;
const ZEROS = Buffer.alloc(HEADER_BYTES);

/** The buffer for small records. Used by one write at a time: the next one overwrites it. */
export class BatchMemory {
  static readonly BYTES = 512 * 1024;
  #buffer: Buffer | undefined;

  /** Allocated on first use: a log that is only read has none. */
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
  readonly #buffers: Uint8Array[] = [];
  readonly #memory: BatchMemory;
  /** The used part of the memory, and the start of the records in it that have no buffer yet. */
  #used = 0;
  #run_start = 0;

  /** `at`: the position of the first record. `seq`: that of the last record before. */
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
    return this.#buffers;
  }

  /** Adjacent small records become one buffer. */
  #endRun(): void {
    if (this.#used > this.#run_start) this.#buffers.push(this.#memory.buffer.subarray(this.#run_start, this.#used));
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
    this.#buffers.push(header, record.payload);
    if (record.meta !== undefined && meta_bytes > 0) this.#buffers.push(record.meta);
    const padding = total - HEADER_BYTES - body_bytes;
    if (padding > 0) this.#buffers.push(ZEROS.subarray(0, padding));
  }
}
