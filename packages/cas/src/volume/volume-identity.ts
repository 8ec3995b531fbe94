/**
 * The identity of an open directory: reads the superblock, makes one for a new directory, and claims the next epoch.
 *
 * Contract: a new directory has its superblock before its first segment. A directory with segments and no superblock is
 * one of the previous version, or its superblock was deleted: its identity comes from the roster note in its log, so it
 * never gets a second one. No record may be appended before `claim` has resolved; a read-only directory is never claimed.
 * Bound: one write at a time. Cancellation: the deadline of the file system.
 */
import { join } from 'node:path';
import { blake3 } from '@napi-rs/blake-hash';
import type { RonError } from '@ron/kernel';
import { diskError, rethrowDisk, type FileSystem } from '@ron/log';
import {
  isVolumeId,
  legacyVolumeId,
  newVolumeId,
  readSuperblock,
  writeSuperblock,
  type Superblock,
} from './superblock.ts';

/** The id of a note that a layer above keeps on each volume. */
export const noteId = (name: string): Buffer => blake3(Buffer.from(`note: ${name}`, 'utf8'));

export const ROSTER_NOTE_ID = noteId('roster');

export interface FoundIdentity extends Superblock {
  /** The directory holds nothing yet. */
  readonly isNew?: true;
}

/** The identity of a directory by its superblock, or that of a new one. Undefined: the log decides. */
export async function identityOnDisk(fs: FileSystem, dir: string): Promise<FoundIdentity | undefined> {
  const superblock = await readSuperblock(fs, dir).catch(rethrowDisk);
  if (superblock !== undefined) return superblock;
  const segments = await fs.list(join(dir, 'segments')).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    return rethrowDisk(error);
  });
  return segments.length === 0 ? { id: newVolumeId(), epoch: 0, isNew: true } : undefined;
}

/**
 * The identity of a directory without a superblock, from its roster note. The previous version wrote the name of the
 * volume into the field `holder`; this one writes its id, and the last epoch of each volume into `seen`.
 */
export function identityFromNote(payload: Uint8Array | undefined, name: string): Superblock {
  const { holder, seen } = noteOf(payload);
  if (typeof holder !== 'string') return { id: legacyVolumeId(name), epoch: 0, former: name };
  if (!isVolumeId(holder)) return { id: legacyVolumeId(holder), epoch: 0, former: holder };
  const epoch: unknown = seen?.[holder]?.epoch;
  return { id: holder, epoch: Number.isSafeInteger(epoch) ? (epoch as number) : 0 };
}

interface RosterNote {
  holder?: unknown;
  seen?: Record<string, { epoch?: unknown } | undefined>;
}

function noteOf(payload: Uint8Array | undefined): RosterNote {
  try {
    return Object(JSON.parse(Buffer.from(payload ?? []).toString('utf8'))) as RosterNote;
  } catch {
    return {};
  }
}

export class VolumeIdentity {
  readonly id: string;
  /** The epoch on disk when the directory was opened: below the last one that others saw in an older copy. */
  readonly epoch_before: number;
  readonly #fs: FileSystem;
  readonly #dir: string;
  readonly #found: FoundIdentity;
  #isClaimed = false;
  #claiming: Promise<void> | undefined;
  #failure: RonError | undefined;

  constructor(fs: FileSystem, dir: string, found: FoundIdentity) {
    this.#fs = fs;
    this.#dir = dir;
    this.#found = found;
    this.id = found.id;
    this.epoch_before = found.epoch;
  }

  get epoch(): number {
    return this.#isClaimed ? this.epoch_before + 1 : this.epoch_before;
  }

  get isClaimed(): boolean {
    return this.#isClaimed;
  }

  /** Why the directory takes no writes. */
  get failure(): RonError | undefined {
    return this.#failure;
  }

  /** Makes the next epoch durable. Throws when the disk does not take it; the next call tries again. */
  claim(): Promise<void> {
    if (this.#isClaimed) return Promise.resolve();
    this.#claiming ??= this.#claim().finally(() => (this.#claiming = undefined));
    return this.#claiming;
  }

  /** Claims the directory when it is opened. Of a directory that exists and takes no writes, records can still be read. */
  async begin(): Promise<void> {
    if (this.#found.isNew !== true) return await this.tryClaim();
    await this.#fs.makeDir(this.#dir);
    await this.claim();
  }

  /** As `claim`, without an error: when the disk takes no writes, `isClaimed` stays false. */
  async tryClaim(): Promise<void> {
    await this.claim().catch(() => undefined);
  }

  async #claim(): Promise<void> {
    try {
      await writeSuperblock(this.#fs, this.#dir, { ...this.#found, epoch: this.epoch_before + 1 });
      this.#isClaimed = true;
      this.#failure = undefined;
    } catch (error) {
      this.#failure = diskError(error);
      throw this.#failure;
    }
  }
}
