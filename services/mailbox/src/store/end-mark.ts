/**
 * The number of the last durable record, in a file beside the segments.
 *
 * No later record states the end of the log. With this file, a start and a proof find a newest segment that was deleted, cut
 * or replaced by an older copy, and no number is used again.
 *
 * Contract: the number in the file belongs to a durable record. `note` overwrites it in place and does not sync: it survives
 * a kill, and a power failure may leave an older number. `close` syncs it. A disk that refuses the write leaves an older
 * number too. A missing or damaged file states nothing. One call at a time.
 */
import { dirname, join } from 'node:path';
import { crc32 } from 'node:zlib';
import { readWhole, type File, type FileSystem } from '@ron/log';

const FILE = 'end';
const BYTES = 16;
const MAGIC = 'RONE';

/** Zero if the file is missing; undefined if it is damaged. */
export async function readEndMark(fs: FileSystem, dir: string): Promise<number | undefined> {
  const bytes = await readWhole(fs, join(dir, FILE), BYTES).catch(() => Buffer.alloc(0));
  return bytes === undefined ? 0 : decode(bytes);
}

export class EndMark {
  readonly #fs: FileSystem;
  readonly #path: string;
  #file: File | undefined;
  #seq: number;

  constructor(fs: FileSystem, dir: string, seq: number) {
    this.#fs = fs;
    this.#path = join(dir, FILE);
    this.#seq = seq;
  }

  /** States that the records up to `seq` are durable. */
  async note(seq: number): Promise<void> {
    if (seq <= this.#seq) return;
    try {
      this.#file ??= await this.#open();
      await this.#file.write([encode(seq)], 0);
      this.#seq = seq;
    } catch {
      // The log is complete without it; the next call tries again.
    }
  }

  async close(seq: number): Promise<void> {
    await this.note(seq);
    try {
      await this.#file?.sync();
    } catch {
      // As in `note`.
    } finally {
      await this.#file?.close().catch(() => undefined);
      this.#file = undefined;
    }
  }

  async #open(): Promise<File> {
    try {
      const file = await this.#fs.open(this.#path, 'write');
      if ((await file.size()) > BYTES) await file.truncate(BYTES);
      return file;
    } catch {
      const file = await this.#fs.create(this.#path);
      await this.#fs.syncDir(dirname(this.#path));
      return file;
    }
  }
}

function encode(seq: number): Buffer {
  const bytes = Buffer.alloc(BYTES);
  bytes.write(MAGIC, 0, 'latin1');
  bytes.writeBigUInt64LE(BigInt(seq), 4);
  bytes.writeUInt32LE(crc32(bytes.subarray(0, 12)), 12);
  return bytes;
}

function decode(bytes: Buffer): number | undefined {
  if (bytes.length !== BYTES || bytes.toString('latin1', 0, 4) !== MAGIC) return undefined;
  if (crc32(bytes.subarray(0, 12)) !== bytes.readUInt32LE(12)) return undefined;
  return Number(bytes.readBigUInt64LE(4));
}
