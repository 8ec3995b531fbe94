/**
 * The file `checkpoint`: the latest signed checkpoint.
 *
 * Contract: the file is replaced atomically and is durable when `replace` resolves; a crash leaves the old note or the new
 * one. A note that no known key signed, or that belongs to another log, is refused. The owner serialises the calls.
 */
import { join } from 'node:path';
import { RonError } from '@ron/kernel';
import { rethrowDisk, writeWhole, type File, type FileSystem } from '@ron/log';
import { decodeCheckpoint, type Checkpoint } from '../note/checkpoint.ts';
import { parseVkey, verifyNote, type NoteKey, type NoteSigner } from '../note/note-key.ts';
import { formatNote, NOTE_BYTES_MAX, parseNote, parseSignature } from '../note/note.ts';

export const CHECKPOINT = 'checkpoint';

export interface SignedCheckpoint extends Checkpoint {
  /** The signed note. */
  readonly text: string;
}

export interface CheckpointFileInit {
  fs: FileSystem;
  dir: string;
  origin: string;
  /** At least one of them must have signed the existing note. */
  keys: readonly NoteKey[];
}

export class CheckpointFile {
  readonly #init: CheckpointFileInit;
  #current: SignedCheckpoint | undefined;

  private constructor(init: CheckpointFileInit, current: SignedCheckpoint | undefined) {
    this.#init = init;
    this.#current = current;
  }

  static async open(init: CheckpointFileInit): Promise<CheckpointFile> {
    const { fs, dir, origin, keys } = init;
    const bytes = await readNote(fs, dir);
    return new CheckpointFile(init, bytes === undefined ? undefined : readCheckpoint(bytes, origin, keys));
  }

  get current(): SignedCheckpoint | undefined {
    return this.#current;
  }

  isSignedByAll(signers: readonly NoteSigner[]): boolean {
    if (this.#current === undefined) return false;
    const { signatures } = parseNote(this.#current.text);
    return signers.every((signer) => {
      const { name, key_id } = parseVkey(signer.vkey);
      return signatures.some((each) => each.name === name && each.key_id === key_id);
    });
  }

  async replace(text: string): Promise<SignedCheckpoint> {
    const next = { ...decodeCheckpoint(parseNote(text).text), text };
    const { fs, dir } = this.#init;
    await writeWhole(fs, join(dir, CHECKPOINT), Buffer.from(text)).catch(rethrowDisk);
    this.#current = next;
    return next;
  }

  /** Adds signature lines. Keys that have already signed are skipped. */
  async addSignatures(lines: string): Promise<void> {
    if (this.#current === undefined) return;
    const note = parseNote(this.#current.text);
    const signatures = [...note.signatures];
    for (const line of lines.split('\n').filter((each) => each !== '')) {
      const added = parseSignature(line);
      const isThere = signatures.some((each) => each.name === added.name && each.key_id === added.key_id);
      if (!isThere) signatures.push(added);
    }
    if (signatures.length > note.signatures.length) await this.replace(formatNote({ ...note, signatures }));
  }
}

/** The note of a log; undefined if it has none. */
export async function readNote(fs: FileSystem, dir: string): Promise<Buffer | undefined> {
  let file: File;
  try {
    file = await fs.open(join(dir, CHECKPOINT), 'read');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    return rethrowDisk(error);
  }
  try {
    const bytes = Buffer.alloc(Math.min(await file.size(), NOTE_BYTES_MAX + 1));
    return bytes.subarray(0, await file.read(bytes, bytes.length, 0));
  } finally {
    await file.close();
  }
}

/** Parses a checkpoint and verifies its signatures. */
export function readCheckpoint(
  bytes: Uint8Array,
  origin: string | undefined,
  keys: readonly NoteKey[],
): SignedCheckpoint {
  try {
    const note = parseNote(bytes);
    verifyNote(note, keys);
    const checkpoint = decodeCheckpoint(note.text);
    if (origin !== undefined && checkpoint.origin !== origin) {
      throw new RonError('audit_integrity', `the checkpoint belongs to the log ${checkpoint.origin}, not to ${origin}`);
    }
    return { ...checkpoint, text: Buffer.from(bytes).toString('utf8') };
  } catch (error) {
    const message = `the checkpoint cannot be trusted: ${error instanceof Error ? error.message : String(error)}`;
    throw new RonError('audit_integrity', message, { cause: error });
  }
}
