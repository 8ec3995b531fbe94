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
import { join } from 'node:path';
import { MarkFile, readMark, type FileSystem, type MarkFormat } from '@ron/log';

const FILE = 'end';
const FORMAT: MarkFormat = { magic: 'RONE', content_bytes: 8 };

/** Zero if the file is missing; undefined if it is damaged. */
export async function readEndMark(fs: FileSystem, dir: string): Promise<number | undefined> {
  try {
    return Number((await readMark(fs, join(dir, FILE), FORMAT))?.readBigUInt64LE() ?? 0n);
  } catch {
    return undefined;
  }
}

export class EndMark {
  readonly #file: MarkFile;
  #seq: number;

  constructor(fs: FileSystem, dir: string, seq: number) {
    this.#file = new MarkFile(fs, join(dir, FILE), FORMAT);
    this.#seq = seq;
  }

  /** States that the records up to `seq` are durable. */
  async note(seq: number): Promise<void> {
    if (seq <= this.#seq) return;
    try {
      await this.#file.write(encode(seq));
      this.#seq = seq;
    } catch {
      // The log is complete without it; the next call tries again.
    }
  }

  async close(seq: number): Promise<void> {
    await this.note(seq);
    try {
      await this.#file.sync();
    } catch {
      // As in `note`.
    } finally {
      await this.#file.close();
    }
  }
}

function encode(seq: number): Buffer {
  const content = Buffer.alloc(FORMAT.content_bytes);
  content.writeBigUInt64LE(BigInt(seq));
  return content;
}
