/**
 * A small file that is overwritten in place and states something about other files, such as how far a log reaches.
 *
 *     magic (4 bytes) | content | CRC-32 of both
 *
 * Contract: `write` does not sync: the content survives a kill, and a power failure may leave an older content or a damaged
 * file. After `sync` no content older than the last one can come back. `readMark` returns only a content that was written.
 * Each method may reject; the next call tries again. One call at a time.
 * Bound: `content_bytes`, always.
 *
 *     const mark = new MarkFile(fs, join(dir, 'end'), { magic: 'RONE', content_bytes: 8 });
 *     await mark.write(content);
 */
import { dirname } from 'node:path';
import { crc32 } from 'node:zlib';
import { assert, RonError } from '@ron/kernel';
import type { File, FileSystem } from './file-system.ts';
import { readWhole } from './whole-file.ts';

export interface MarkFormat {
  /** Four characters. */
  readonly magic: string;
  readonly content_bytes: number;
}

const MAGIC_BYTES = 4;
const CRC_BYTES = 4;

/** Undefined if the file is missing. Rejects if it is damaged or cannot be read. */
export async function readMark(fs: FileSystem, path: string, format: MarkFormat): Promise<Buffer | undefined> {
  const bytes_max = bytesOf(format);
  const bytes = await readWhole(fs, path, bytes_max);
  if (bytes === undefined) return undefined;
  const end = bytes_max - CRC_BYTES;
  const isIntact =
    bytes.length === bytes_max &&
    bytes.toString('latin1', 0, MAGIC_BYTES) === format.magic &&
    crc32(bytes.subarray(0, end)) === bytes.readUInt32LE(end);
  if (!isIntact) throw new RonError('integrity', `${path} is damaged`);
  return bytes.subarray(MAGIC_BYTES, end);
}

export class MarkFile {
  readonly #fs: FileSystem;
  readonly #path: string;
  readonly #format: MarkFormat;
  #file: File | undefined;

  constructor(fs: FileSystem, path: string, format: MarkFormat) {
    this.#fs = fs;
    this.#path = path;
    this.#format = format;
  }

  async write(content: Uint8Array): Promise<void> {
    const bytes = Buffer.alloc(bytesOf(this.#format));
    assert(content.length === this.#format.content_bytes, 'a mark has a content of one length');
    bytes.write(this.#format.magic, 0, 'latin1');
    bytes.set(content, MAGIC_BYTES);
    const end = bytes.length - CRC_BYTES;
    bytes.writeUInt32LE(crc32(bytes.subarray(0, end)), end);
    this.#file ??= await this.#open();
    await this.#file.write([bytes], 0);
  }

  /** Makes the last content durable, if this object wrote one. */
  async sync(): Promise<void> {
    await this.#file?.sync();
  }

  /** Durably: afterwards the mark states nothing. */
  async remove(): Promise<void> {
    await this.close();
    await this.#fs.remove(this.#path).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
    await this.#fs.syncDir(dirname(this.#path));
  }

  async close(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    await file?.close().catch(() => undefined);
  }

  async #open(): Promise<File> {
    const file = await this.#fs.open(this.#path, 'write').catch(() => undefined);
    if (file === undefined) return await this.#create();
    try {
      const bytes_max = bytesOf(this.#format);
      if ((await file.size()) > bytes_max) await file.truncate(bytes_max);
      return file;
    } catch (error) {
      await file.close().catch(() => undefined);
      throw error;
    }
  }

  async #create(): Promise<File> {
    const file = await this.#fs.create(this.#path);
    try {
      await this.#fs.syncDir(dirname(this.#path));
      return file;
    } catch (error) {
      await file.close().catch(() => undefined);
      throw error;
    }
  }
}

const bytesOf = ({ content_bytes }: MarkFormat): number => MAGIC_BYTES + content_bytes + CRC_BYTES;
