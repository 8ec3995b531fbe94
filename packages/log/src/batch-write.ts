/**
 * Gathers what one write puts on disk: records with their headers and places, as pieces that follow one another.
 *
 * Promise: `bytes` is what the pieces take together, and `seq` the largest number among the records. Payloads that are not
 * small are not copied: they must stay as they are until the write has ended.
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

export class BatchWrite {
  seq: number;
  bytes = 0;
  readonly #segment: number;
  readonly #start: number;
  readonly #salt: number;
  readonly #time_s = Math.floor(sched.wall_ms() / 1000) >>> 0;
  readonly #pieces: Uint8Array[] = [];

  /** `at`: where the first record goes. `seq`: of the last record before. */
  constructor(at: Position, salt: number, seq: number) {
    this.seq = seq;
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
    return this.#pieces;
  }

  #put(record: RecordInput, init: HeaderInit): void {
    const meta_bytes = record.meta?.length ?? 0;
    const body_bytes = record.payload.length + meta_bytes;
    const total = recordBytes(record.payload.length, meta_bytes);
    this.bytes += total;
    if (total <= COPY_BYTES_MAX) {
      const whole = Buffer.allocUnsafe(total);
      encodeHeader(record, init, whole, 0);
      whole.set(record.payload, HEADER_BYTES);
      if (record.meta !== undefined) whole.set(record.meta, HEADER_BYTES + record.payload.length);
      whole.fill(0, HEADER_BYTES + body_bytes);
      this.#pieces.push(whole);
      return;
    }
    const header = Buffer.allocUnsafe(HEADER_BYTES);
    encodeHeader(record, init, header, 0);
    this.#pieces.push(header, record.payload);
    if (record.meta !== undefined && meta_bytes > 0) this.#pieces.push(record.meta);
    const padding = total - HEADER_BYTES - body_bytes;
    if (padding > 0) this.#pieces.push(ZEROS.subarray(0, padding));
  }
}
