/**
 * A download into a file: it is written to `FILE.part`, and renamed to `FILE` once every byte is verified.
 *
 * Contract: `FILE` appears atomically and complete. `resume` verifies the part file of an earlier attempt against the
 * address and truncates it after the last verified byte. `write` copies its argument.
 * Bound: two batches of `BATCH_BYTES`; one is filled while the other is written.
 */
import { constants } from 'node:fs';
import { open, rename, stat, unlink, type FileHandle } from 'node:fs/promises';
import type { StorageClient } from '@ron/client';
import type { Address } from '@ron/proto';
import { CliError, messageOf, systemCode } from './exits.ts';
import { fileBody } from './file-body.ts';

const BATCH_BYTES = 1024 * 1024;

export class PartFile implements AsyncDisposable {
  readonly path: string;
  readonly #target: string;
  readonly #file: FileHandle;
  #batch = Buffer.allocUnsafeSlow(BATCH_BYTES);
  #spare = Buffer.allocUnsafeSlow(BATCH_BYTES);
  #batch_bytes = 0;
  /** The pending write of the other batch. */
  #writing: Promise<void> = Promise.resolve();
  #failure: CliError | undefined;
  /** Offset of the next write; before `resume` and `startAt`, the size of the file. */
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
      // Never follows a link that another user with write access to this directory placed there.
      const flags = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW;
      const file = await open(path, flags, 0o666);
      return new PartFile(target, path, file, (await file.stat()).size);
    } catch (error) {
      throw new CliError('no_output', `${path} cannot be written (${systemCode(error) ?? String(error)})`);
    }
  }

  /** Truncates the file to its verified prefix and returns the length of that. */
  async resume(client: Pick<StorageClient, 'provenPrefix'>, address: Address, signal: AbortSignal): Promise<number> {
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
      if (this.#batch_bytes === BATCH_BYTES) await this.#writeBatch();
    }
  }

  /** Resolves when all bytes are written to the file. */
  async flush(): Promise<void> {
    await this.#writeBatch();
    await this.#written();
  }

  /** Starts writing the batch, once the previous one is written and its buffer is free. */
  async #writeBatch(): Promise<void> {
    await this.#written();
    const batch = this.#batch.subarray(0, this.#batch_bytes);
    [this.#batch, this.#spare] = [this.#spare, this.#batch];
    this.#batch_bytes = 0;
    // The next `#written` throws the failure.
    this.#writing = this.#writeAll(batch).catch((error: unknown) => {
      this.#failure = new CliError('io', `${this.path}: ${messageOf(error)}`);
    });
  }

  async #written(): Promise<void> {
    await this.#writing;
    if (this.#failure !== undefined) throw this.#failure;
  }

  async #writeAll(batch: Uint8Array): Promise<void> {
    // A write may be short.
    for (let written = 0; written < batch.length;) {
      const { bytesWritten } = await this.#file.write(batch, written, batch.length - written, this.#at);
      written += bytesWritten;
      this.#at += bytesWritten;
    }
  }

  /** Syncs the file and renames it to the target. */
  async finish(): Promise<void> {
    await this.flush();
    await this.#file.datasync();
    await rename(this.path, this.#target);
    this.#finished = true;
  }

  /** Deletes an empty part file. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#writing;
    await this.#file.close();
    if (!this.#finished && this.#at === 0) await unlink(this.path).catch(() => undefined);
  }
}
