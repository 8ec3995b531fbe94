/**
 * Reads a segment from front to back and tells records from damage.
 *
 * Promise: every record whose header and body check is reported, in order, once. Bytes between two records that are not
 * one are reported as a gap. What follows the last record is the tail: torn if it is not empty.
 * Bound: one buffer of `READ_BYTES`, larger only for a larger record. Cancellation: between two reads, by the signal.
 */
import { crc32 } from 'node:zlib';
import type { File } from './file-system.ts';
import { decodeHeader, HEADER_BYTES, recordBytes, type RecordHead } from './record.ts';

const READ_BYTES = 4 * 1024 * 1024;

export interface ScanInit {
  file: File;
  /** Where to begin: 0 or the end of a known record. */
  from: number;
  onRecord(head: RecordHead, offset: number): void;
  /** Bytes that are no record, with a record after them. */
  onGap(offset: number, bytes: number): void;
  signal: AbortSignal;
}

export interface ScanEnd {
  /** Where the last good record ends. */
  readonly tail: number;
  /** Bytes after it that are no record. */
  readonly torn_bytes: number;
}

/** A sliding window over the file; `at` is a file offset. */
class Window {
  readonly #file: File;
  #buffer = Buffer.allocUnsafe(READ_BYTES);
  #start = 0;
  #filled = 0;

  constructor(file: File) {
    this.#file = file;
  }

  /** The bytes from `at` on, at least `bytes` of them unless the file ends before. */
  async from(at: number, bytes: number): Promise<Buffer> {
    const inside = at >= this.#start && at + bytes <= this.#start + this.#filled;
    if (!inside) await this.#load(at, bytes);
    return this.#buffer.subarray(at - this.#start, this.#filled);
  }

  async #load(at: number, bytes: number): Promise<void> {
    if (bytes > this.#buffer.length) this.#buffer = Buffer.allocUnsafe(bytes);
    this.#start = at;
    this.#filled = await this.#file.read(this.#buffer, this.#buffer.length, at);
  }
}

export async function scan(init: ScanInit): Promise<ScanEnd> {
  const size = await init.file.size();
  const window = new Window(init.file);
  let tail = init.from;
  let at = init.from;
  while (at + HEADER_BYTES <= size) {
    init.signal.throwIfAborted();
    const head = await recordAt(window, at, size);
    if (head === undefined) {
      // Records begin at multiples of the header's length: the next one, if any, is at one of these.
      at += HEADER_BYTES;
      continue;
    }
    if (at > tail) init.onGap(tail, at - tail);
    init.onRecord(head, at);
    at += recordBytes(head.payload_bytes, head.meta_bytes);
    tail = at;
  }
  return { tail, torn_bytes: Math.max(0, size - tail) };
}

async function recordAt(window: Window, at: number, size: number): Promise<RecordHead | undefined> {
  const head = decodeHeader(await window.from(at, HEADER_BYTES), 0);
  if (head === undefined) return undefined;
  const body_bytes = head.payload_bytes + head.meta_bytes;
  if (at + recordBytes(head.payload_bytes, head.meta_bytes) > size) return undefined;
  const bytes = await window.from(at, HEADER_BYTES + body_bytes);
  if (bytes.length < HEADER_BYTES + body_bytes) return undefined;
  return crc32(bytes.subarray(HEADER_BYTES, HEADER_BYTES + body_bytes)) === head.body_crc ? head : undefined;
}
