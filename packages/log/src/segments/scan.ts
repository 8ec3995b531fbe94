/**
 * Scans a segment from front to back and separates records from damage.
 *
 * Contract: every record with a valid header and body is reported once, in order. Other bytes between two records are
 * reported as a gap. Bytes after the last record are the tail: torn if it is not empty. If `onRecord` returns a promise, the
 * scan waits for it. A read that fails rejects; with `onUnreadable`, bytes that two reads could not read (EIO) count as zeros.
 * Bound: one buffer of `READ_BYTES`, larger only for a larger record; the event loop gets a turn after `SLICE_COST`. With
 * more than `UNREADABLE_MAX` pieces that cannot be read, the disk has failed, and the scan rejects.
 * Cancellation: by the signal, between two reads.
 */
import { sched } from '@ron/kernel';
import { isBadSector } from '../disk/disk-error.ts';
import type { File } from '../disk/file-system.ts';
import { decodeHeader, HEADER_BYTES, isBodyIntact, recordBytes, type RecordHead } from './record.ts';

const READ_BYTES = 4 * 1024 * 1024;
/** The event loop gets a turn after this much work, in bytes to checksum: about a millisecond. */
const SLICE_COST = 1024 * 1024;
/** A record costs about as much as this many bytes, mostly for entering it into an index. */
const RECORD_COST = 8 * 1024;

/** A part of the file is read again in pieces of this size, which is that of a sector or a page. */
const PIECE_BYTES = 4096;
const UNREADABLE_MAX = 256;

export interface ScanInit {
  file: File;
  /** Where to begin: 0 or the end of a known record. */
  from: number;
  /** Ends with the first record that reaches this far. Default: at the end of the file. */
  until?: number | undefined;
  /** The segment's, see record.ts. */
  salt: number;
  /** `body` is the payload and then the meta; it is only valid during the call. */
  onRecord(head: RecordHead, offset: number, body: Buffer): void | Promise<void>;
  /** Bytes that are not a record, followed by a record. */
  onGap(offset: number, bytes: number): void;
  /**
   * A record with a valid header and a damaged body that is completely in the file. If it returns true, the record is
   * skipped and counts as reported. Otherwise it is also a part of a gap, or of the torn tail. `body` as in `onRecord`.
   */
  onBadBody?: ((head: RecordHead, offset: number, body: Buffer) => boolean | void) | undefined;
  /** Bytes that cannot be read, once for each piece of the file. Without it the scan rejects. */
  onUnreadable?: ((offset: number, bytes: number) => void) | undefined;
  signal: AbortSignal;
}

export interface ScanEnd {
  /** Where the last good record ends. */
  readonly tail: number;
  /** Bytes after it that are not a record. */
  readonly torn_bytes: number;
  /** The segment continues after the requested part. */
  readonly hasMore: boolean;
  /** Some bytes after the last good record could not be read: they may be records. */
  readonly isTailUnreadable: boolean;
}

/** A sliding window over the file. Most records are inside, so they are read without waiting. */
class Window {
  readonly #file: File;
  readonly #size: number;
  readonly #onUnreadable: ScanInit['onUnreadable'];
  /** Offsets of pieces that cannot be read. */
  readonly #unreadable = new Set<number>();
  #buffer: Buffer;
  #start = 0;
  #filled = 0;

  constructor({ file, onUnreadable }: ScanInit, size: number, bytes: number) {
    this.#file = file;
    this.#size = size;
    this.#onUnreadable = onUnreadable;
    this.#buffer = Buffer.allocUnsafe(Math.max(HEADER_BYTES, Math.min(READ_BYTES, bytes)));
  }

  holds(at: number, bytes: number): boolean {
    return at >= this.#start && at + bytes <= this.#start + this.#filled;
  }

  /** The header at `at`, which must be inside the window. */
  headAt(at: number, salt: number): RecordHead | undefined {
    return decodeHeader(this.#buffer, at - this.#start, salt);
  }

  /** `bytes` bytes from `at` on, which must be inside the window. */
  at(at: number, bytes: number): Buffer {
    return this.#buffer.subarray(at - this.#start, at - this.#start + bytes);
  }

  /** Moves the window to these bytes; false when the file is shorter than its stated size. */
  async move(at: number, bytes: number): Promise<boolean> {
    if (bytes > this.#buffer.length) this.#buffer = Buffer.allocUnsafe(bytes);
    this.#start = at;
    this.#filled = await this.#read(Math.min(this.#buffer.length, this.#size - at), at);
    return this.#filled >= bytes;
  }

  isUnreadableAfter(offset: number): boolean {
    return [...this.#unreadable].some((piece) => piece + PIECE_BYTES > offset);
  }

  async #read(length: number, at: number): Promise<number> {
    try {
      return await this.#file.read(this.#buffer, length, at);
    } catch (error) {
      if (this.#onUnreadable === undefined || !isBadSector(error)) throw error;
    }
    for (let done = 0; done < length;) {
      const piece = at + done - ((at + done) % PIECE_BYTES);
      const bytes = Math.min(length - done, piece + PIECE_BYTES - at - done);
      const into = this.#buffer.subarray(done, done + bytes);
      const count = await this.#readPiece(piece, into, at + done);
      if (count < bytes) return done + count;
      done += bytes;
    }
    return length;
  }

  async #readPiece(piece: number, into: Buffer, at: number): Promise<number> {
    try {
      return await this.#file.read(into, into.length, at);
    } catch (error) {
      if (!isBadSector(error)) throw error;
      if (!this.#unreadable.has(piece)) this.#onUnreadable?.(at, into.length);
      this.#unreadable.add(piece);
      if (this.#unreadable.size > UNREADABLE_MAX) throw error;
      into.fill(0);
      return into.length;
    }
  }
}

export async function scan(init: ScanInit): Promise<ScanEnd> {
  const size = await init.file.size();
  const until = Math.min(init.until ?? size, size);
  const window = new Window(init, size, until - init.from);
  let tail = init.from;
  let at = init.from;
  let cost = 0;
  while (at + HEADER_BYTES <= size) {
    if (cost >= SLICE_COST) {
      cost = 0;
      await sched.pause('log.scan');
      init.signal.throwIfAborted();
    }
    if (at === tail && at >= until) return { tail, torn_bytes: 0, hasMore: true, isTailUnreadable: false };
    if (!window.holds(at, HEADER_BYTES)) {
      init.signal.throwIfAborted();
      if (!(await window.move(at, HEADER_BYTES))) break;
    }
    const head = window.headAt(at, init.salt);
    const bytes = head === undefined ? 0 : recordBytes(head.payload_bytes, head.meta_bytes);
    if (head !== undefined && at + bytes <= size && (window.holds(at, bytes) || (await window.move(at, bytes)))) {
      const body = window.at(at + HEADER_BYTES, head.payload_bytes + head.meta_bytes);
      if (isBodyIntact(head, body)) {
        if (at > tail) init.onGap(tail, at - tail);
        cost += RECORD_COST + bytes;
        const busy = init.onRecord(head, at, body);
        if (busy !== undefined) await busy;
        at += bytes;
        tail = at;
        continue;
      }
      cost += bytes;
      if (init.onBadBody?.(head, at, body) === true) {
        if (at > tail) init.onGap(tail, at - tail);
        at += bytes;
        tail = at;
        continue;
      }
    }
    cost += HEADER_BYTES;
    // Records begin at multiples of the header's length: the next one, if any, is at one of these.
    at += HEADER_BYTES;
  }
  const isTailUnreadable = window.isUnreadableAfter(tail);
  return { tail, torn_bytes: Math.max(0, size - tail), hasMore: false, isTailUnreadable };
}
