/**
 * A run: an immutable file of sorted entries of the index.
 *
 *     | entries, 72 bytes each | high | fingerprint | tag | footer (JSON) | footer bytes | footer crc | magic |
 *
 * Entries are ordered by table and id. `high`, `fingerprint` and `tag` are the part that is kept in memory (run-keys.ts);
 * the footer has a checksum for each `PIECE_BYTES` of them, and each entry has its own.
 *
 * Contract: every byte that is read is verified. A failed verification throws `RunDamaged`; it never yields a wrong
 * entry. Reading never blocks the event loop: `entryNow` answers only from the page cache.
 * Bound: 10 bytes of memory an entry, one descriptor. Cancellation: the file system's deadline ends each call.
 */
import { crc32 } from 'node:zlib';
import { sched } from '@ron/kernel';
import { ID_BYTES, type File, type FileSystem } from '@ron/log';
import {
  ENTRY_BYTES,
  encodeEntry,
  FLAG_NONE,
  isEntryIntact,
  tagAt,
  TABLE_COUNT,
  type Applied,
  type Place,
} from './entry.ts';
import { fingerprintOf, highOf, startsOf, type RunKeys } from './run-keys.ts';

const FORMAT = 1;
const MAGIC = Buffer.from('RONRUN01', 'latin1');
const TRAILER_BYTES = 16;
const FOOTER_BYTES_MAX = 64 * 1024 * 1024;
/** Checksummed, read and written in one go: about a tenth of a millisecond. */
export const PIECE_BYTES = 256 * 1024;
const BLOCK_ENTRIES = Math.floor(PIECE_BYTES / ENTRY_BYTES);

/** The index holds something that fails its checksum: it has to be rebuilt. */
export class RunDamaged extends Error {}

export interface Footer {
  readonly format: number;
  readonly number: number;
  /** Its age among the runs: lower is older. A merged run takes the place of the newest of its sources. */
  readonly order: number;
  /** Entries by table number. */
  readonly counts: readonly number[];
  /** Entries that only hide older ones. */
  readonly none: number;
  readonly applied: Applied;
  readonly secret: number;
  /** The numbers of all runs that make up the index since this one was added, itself included. */
  readonly live: readonly number[];
  /** Checksums of the pieces of `high`, `fingerprint` and `tag`, in this order. */
  readonly pieces: readonly number[];
}

/** A run that is being written. Entries come in order; `block` is awaited when `isBlockFull`. */
export class RunWriter {
  readonly #file: File;
  readonly #secret: number;
  readonly #high: Uint32Array<ArrayBuffer>;
  readonly #fingerprint: Uint32Array<ArrayBuffer>;
  readonly #tag: Uint16Array<ArrayBuffer>;
  readonly #counts = Array.from({ length: TABLE_COUNT }, () => 0);
  readonly #block: Buffer;
  #block_bytes = 0;
  #written_bytes = 0;
  #count = 0;
  #none = 0;

  /** `count_max`: at most this many entries are added. */
  constructor(file: File, count_max: number, secret: number) {
    this.#file = file;
    this.#secret = secret;
    this.#high = new Uint32Array(count_max);
    this.#fingerprint = new Uint32Array(count_max);
    this.#tag = new Uint16Array(count_max);
    this.#block = Buffer.allocUnsafeSlow(Math.max(1, Math.min(BLOCK_ENTRIES, count_max)) * ENTRY_BYTES);
  }

  get count(): number {
    return this.#count;
  }

  get isBlockFull(): boolean {
    return this.#block_bytes === this.#block.length;
  }

  add(key: string, place: Place | undefined): void {
    const at = this.#block_bytes;
    encodeEntry(key, place, this.#block, at);
    const fingerprint = fingerprintOf(this.#block, this.#secret, at);
    this.#added(key.charCodeAt(0), highOf(this.#block, at), fingerprint, tagAt(this.#block, at));
  }

  /** Adds entry `index` of another run, which lies at `at` of `bytes`. */
  copy(table: number, { keys }: Run, index: number, bytes: Buffer, at: number): void {
    bytes.copy(this.#block, this.#block_bytes, at, at + ENTRY_BYTES);
    this.#added(table, keys.high[index]!, keys.fingerprint[index]!, keys.tag[index]!);
  }

  #added(table: number, high: number, fingerprint: number, tag: number): void {
    const index = this.#count;
    this.#high[index] = high;
    this.#fingerprint[index] = fingerprint;
    this.#tag[index] = tag;
    if ((tag & (FLAG_NONE << 8)) !== 0) this.#none += 1;
    this.#counts[table]! += 1;
    this.#count += 1;
    this.#block_bytes += ENTRY_BYTES;
  }

  /** Writes the entries that were added so far. */
  async block(): Promise<void> {
    const bytes = this.#block_bytes;
    if (bytes === 0) return;
    await this.#file.write([this.#block.subarray(0, bytes)], this.#written_bytes);
    this.#written_bytes += bytes;
    this.#block_bytes = 0;
  }

  /** Writes the sections after the entries and makes all of it durable, so that `finish` has little left to do. */
  async sections(): Promise<number[]> {
    await this.block();
    const pieces: number[] = [];
    for (const section of [this.#high, this.#fingerprint, this.#tag]) {
      for (const piece of piecesOf(section, this.#count)) {
        pieces.push(crc32(piece));
        await this.#file.write([piece], this.#written_bytes);
        this.#written_bytes += piece.length;
        await sched.pause('index.sections');
      }
    }
    await this.#file.sync();
    return pieces;
  }

  /** Writes the footer; the file is a run from then on. */
  async finish(init: Omit<Footer, 'format' | 'counts' | 'none' | 'secret'>): Promise<Footer> {
    const rest = { counts: this.#counts, none: this.#none, secret: this.#secret };
    const footer: Footer = { format: FORMAT, ...init, ...rest };
    const json = Buffer.from(JSON.stringify(footer), 'utf8');
    const trailer = Buffer.alloc(TRAILER_BYTES);
    trailer.writeUInt32LE(json.length, 0);
    trailer.writeUInt32LE(crc32(json), 4);
    MAGIC.copy(trailer, 8);
    await this.#file.write([json, trailer], this.#written_bytes);
    await this.#file.sync();
    return footer;
  }

  /** The finished run; it owns the file from now on. */
  toRun(footer: Footer): Run {
    const keys = {
      high: trimmed(this.#high, this.#count),
      fingerprint: trimmed(this.#fingerprint, this.#count),
      tag: trimmed(this.#tag, this.#count),
      start: startsOf(this.#counts),
    };
    return new Run(this.#file, footer, keys);
  }
}

/** Without the memory that was reserved for entries that never came, when that is much. */
function trimmed<T extends Uint32Array<ArrayBuffer> | Uint16Array<ArrayBuffer>>(array: T, count: number): T {
  return (count < array.length * 0.9 ? array.slice(0, count) : array.subarray(0, count)) as T;
}

function* piecesOf(section: Uint32Array<ArrayBuffer> | Uint16Array<ArrayBuffer>, count: number): Generator<Buffer> {
  const bytes = Buffer.from(section.buffer, section.byteOffset, count * section.BYTES_PER_ELEMENT);
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) yield bytes.subarray(at, at + PIECE_BYTES);
}

const damaged = (what: string): RunDamaged => new RunDamaged(`a run of the index is damaged: ${what}`);

/** The footer of a run file. */
export async function readFooter(file: File): Promise<Footer> {
  const size = await file.size();
  const trailer = Buffer.alloc(TRAILER_BYTES);
  if (size < TRAILER_BYTES) throw damaged('its file is too short');
  await readAll(file, trailer, size - TRAILER_BYTES);
  const bytes = trailer.readUInt32LE(0);
  if (MAGIC.compare(trailer, 8) !== 0 || bytes > Math.min(size, FOOTER_BYTES_MAX)) throw damaged('its end');
  const json = Buffer.alloc(bytes);
  await readAll(file, json, size - TRAILER_BYTES - bytes);
  if (crc32(json) !== trailer.readUInt32LE(4)) throw damaged('its footer');
  const footer = JSON.parse(json.toString('utf8')) as Footer;
  if (footer.format !== FORMAT) throw damaged(`format ${footer.format} is not known`);
  return footer;
}

async function readAll(file: File, into: Buffer, position: number): Promise<void> {
  if (position < 0 || (await file.read(into, into.length, position)) < into.length)
    throw damaged('its file is too short');
}

export class Run {
  readonly footer: Footer;
  readonly keys: RunKeys;
  readonly #file: File;
  readonly #shared = Buffer.allocUnsafeSlow(ENTRY_BYTES);
  #users = 0;
  #isRetired = false;

  constructor(file: File, footer: Footer, keys: RunKeys) {
    this.#file = file;
    this.footer = footer;
    this.keys = keys;
  }

  /** Reads the footer and the sections that are kept in memory, a piece at a time. */
  static async open(fs: FileSystem, path: string): Promise<Run> {
    const file = await fs.open(path, 'read');
    try {
      const footer = await readFooter(file);
      return new Run(file, footer, await readKeys(file, footer));
    } catch (error) {
      await file.close().catch(() => undefined);
      throw error;
    }
  }

  get count(): number {
    return this.keys.start.at(-1)!;
  }

  /** Whether entry `index` only hides older ones. */
  isNone(index: number): boolean {
    return (this.keys.tag[index]! & (FLAG_NONE << 8)) !== 0;
  }

  /** The bytes of an entry, valid until the next call; undefined when the disk would have to be waited for. */
  entryNow(index: number): Buffer | undefined {
    const count = this.#isRetired ? undefined : this.#file.readNow?.(this.#shared, ENTRY_BYTES, index * ENTRY_BYTES);
    if (count !== ENTRY_BYTES) return undefined;
    this.#verify(this.#shared, index, 1);
    return this.#shared;
  }

  /** Entries from one index up to and without another, verified. */
  async entries(from: number, to: number): Promise<Buffer> {
    const bytes = Buffer.allocUnsafeSlow((to - from) * ENTRY_BYTES);
    if (bytes.length === 0) return bytes;
    const now = this.#isRetired ? undefined : this.#file.readNow?.(bytes, bytes.length, from * ENTRY_BYTES);
    if (now !== bytes.length) await this.#read(bytes, from * ENTRY_BYTES);
    this.#verify(bytes, from, to - from);
    return bytes;
  }

  /** Closes the file once the last read has ended. */
  async retire(): Promise<void> {
    if (this.#isRetired) return;
    this.#isRetired = true;
    if (this.#users === 0) await this.#file.close();
  }

  /** Keeps the file open until the result is called. */
  use(): () => void {
    this.#users += 1;
    return () => this.#release();
  }

  #release(): void {
    this.#users -= 1;
    if (this.#isRetired && this.#users === 0) void this.#file.close().catch(() => undefined);
  }

  async #read(into: Buffer, position: number): Promise<void> {
    this.#users += 1;
    try {
      await readAll(this.#file, into, position);
    } finally {
      this.#release();
    }
  }

  /** An entry must check, and be the one that the part in memory says: a sector in the wrong place checks as well. */
  #verify(bytes: Buffer, index: number, count: number): void {
    const { high, tag, start } = this.keys;
    let table = start.findLastIndex((first) => first <= index);
    for (let each = 0; each < count; each++) {
      while (index + each >= start[table + 1]!) table += 1;
      const at = each * ENTRY_BYTES;
      const isIt = highOf(bytes, at) === high[index + each] && tagAt(bytes, at) === tag[index + each];
      if (!isIt || !isEntryIntact(bytes, at, table)) throw damaged(`entry ${index + each}`);
    }
  }
}

async function readKeys(file: File, footer: Footer): Promise<RunKeys> {
  const start = startsOf(footer.counts);
  const count = start.at(-1)!;
  if ((await file.size()) < count * (ENTRY_BYTES + 10)) throw damaged('its file is too short');
  const high = new Uint32Array(count);
  const fingerprint = new Uint32Array(count);
  const tag = new Uint16Array(count);
  let position = count * ENTRY_BYTES;
  let piece = 0;
  for (const section of [high, fingerprint, tag]) {
    for (const bytes of piecesOf(section, count)) {
      await readAll(file, bytes, position);
      if (crc32(bytes) !== footer.pieces[piece]) throw damaged('the part that is kept in memory');
      position += bytes.length;
      piece += 1;
      await sched.pause('index.open');
    }
  }
  return { high, fingerprint, tag, start };
}

export const idAt = (bytes: Buffer, at: number): Buffer => bytes.subarray(at, at + ID_BYTES);
