/**
 * The last checkpoint of the fill log, kept outside of its directory: it shows that the directory was replaced by an older copy.
 *
 * Contract: written before a checkpoint is published, so the log always extends it. It is the signed note itself, which
 * `ron audit verify --since` reads. A rollback of all files together is not detected.
 */
import { RonError } from '@ron/kernel';
import { readWhole, rethrowDisk, writeWhole, type FileSystem } from '@ron/log';
import { decodeCheckpoint, NOTE_BYTES_MAX, parseNote, type Checkpoint, type KnownCheckpoint } from '@ron/tlog/log';

export class KnownCheckpointFile {
  readonly #fs: FileSystem;
  readonly #path: string;

  constructor(fs: FileSystem, path: string) {
    this.#fs = fs;
    this.#path = path;
  }

  /** Rejects with `audit_integrity` if it belongs to another log: the directory was removed or replaced. */
  async read(origin: string): Promise<KnownCheckpoint | undefined> {
    const bytes = await readWhole(this.#fs, this.#path, NOTE_BYTES_MAX).catch(rethrowDisk);
    if (bytes === undefined) return undefined;
    const known = parsed(bytes);
    if (known?.origin === origin) return { size: known.size, root: known.root, by: this.#path };
    throw new RonError(
      'audit_integrity',
      known === undefined ? `${this.#path} is damaged` : 'the log is not the one that was signed',
    );
  }

  async write(text: string): Promise<void> {
    await writeWhole(this.#fs, this.#path, Buffer.from(text)).catch(rethrowDisk);
  }
}

function parsed(bytes: Uint8Array): Checkpoint | undefined {
  try {
    return decodeCheckpoint(parseNote(bytes).text);
  } catch {
    return undefined;
  }
}
