/**
 * A download on its way into a file: `FILE.part` until every byte is there and proven, then `FILE`.
 *
 * Promise: `FILE` appears in one step and is complete. What an earlier attempt left in the part file is used as far as it
 * is proven to belong to the address, and cut where it is not. What is given to `write` is copied.
 * Bound: two batches of `BATCH_BYTES`: one is filled while the other is on its way to the disk.
 */
import { constants } from 'node:fs';
import { open, rename, stat, unlink, type FileHandle } from 'node:fs/promises';
import type { StorageClient } from '@ron/client';
import type { Address } from '@ron/proto';
import { CliError, systemCode } from './exits.ts';
import { fileBody } from './file-body.ts';

const BATCH_BYTES = 1024 * 1024;

export class PartFile implements AsyncDisposable {
  readonly path: string;
  readonly #target: string;
  readonly #file: FileHandle;
  #batch = Buffer.allocUnsafeSlow(BATCH_BYTES);
  #spare = Buffer.allocUnsafeSlow(BATCH_BYTES);
  #batch_bytes = 0;
  /** The other batch, on its way. */
  #writing: Promise<void> = Promise.resolve();
  #failure: CliError | undefined;
  /** Where the next byte goes; until it is known what is right, the end. */
  #at: number;
  #finished = false;

  private constructor(target: string, path: string, file: FileHandle, size: number) {
    this.#target = target;
    this.path = path;
    this.#file = file;
    this.#at = size;
  }

  static async open(target: string): Promise<PartFile> {
    const path = `${target}.part`;
    const isDirectory = await stat(target).then(
      (stats) => stats.isDirectory(),
      () => false,
    );
    if (isDirectory) throw new CliError('no_output', `${target} is a directory: name a file in it`);
    try {
      // Never through a link: the part file is ours, whoever else may write to this directory.
      const flags = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW;
      const file = await open(path, flags, 0o666);
      return new PartFile(target, path, file, (await file.stat()).size);
    } catch (error) {
      throw new CliError('no_output', `${path} cannot be written (${systemCode(error) ?? String(error)})`);
    }
  }

  /** How many bytes are there and right. The rest is cut off. */
  async resume(client: StorageClient, address: Address, signal: AbortSignal): Promise<number> {
    const proven = await client.provenPrefix(address, fileBody(this.#file, this.#at), { signal });
    await this.startAt(proven);
    return proven;
  }

  async startAt(offset: number): Promise<void> {
    await this.#file.truncate(offset);
    this.#at = offset;
  }

  async write(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length;) {
      const count = Math.min(bytes.length - at, BATCH_BYTES - this.#batch_bytes);
      this.#batch.set(bytes.subarray(at, at + count), this.#batch_bytes);
      this.#batch_bytes += count;
      at += count;
      if (this.#batch_bytes === BATCH_BYTES) await this.#send();
    }
  }

  /** Returns when everything that was given is in the file. */
  async flush(): Promise<void> {
    await this.#send();
    await this.#arrived();
  }

  /** Sends the batch on its way, once the one before has arrived: its memory is the next one's. */
  async #send(): Promise<void> {
    await this.#arrived();
    const batch = this.#batch.subarray(0, this.#batch_bytes);
    [this.#batch, this.#spare] = [this.#spare, this.#batch];
    this.#batch_bytes = 0;
    // A failure is told to whoever waits for it, or sends the next one.
    this.#writing = this.#writeAll(batch).catch((error: unknown) => {
      this.#failure = new CliError('io', `${this.path}: ${error instanceof Error ? error.message : String(error)}`);
    });
  }

  async #arrived(): Promise<void> {
    await this.#writing;
    if (this.#failure !== undefined) throw this.#failure;
  }

  async #writeAll(batch: Uint8Array): Promise<void> {
    // The system may take less than it was given.
    for (let written = 0; written < batch.length;) {
      const { bytesWritten } = await this.#file.write(batch, written, batch.length - written, this.#at);
      written += bytesWritten;
      this.#at += bytesWritten;
    }
  }

  /** Makes it durable and gives it its name. */
  async finish(): Promise<void> {
    await this.flush();
    await this.#file.datasync();
    await rename(this.path, this.#target);
    this.#finished = true;
  }

  /** A part file without a byte in it helps nobody: it goes. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#writing;
    await this.#file.close();
    if (!this.#finished && this.#at === 0) await unlink(this.path).catch(() => undefined);
  }
}
