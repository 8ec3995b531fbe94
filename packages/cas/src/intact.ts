import { isRonError } from '@ron/kernel';
import type { Kind, Volume } from './volume.ts';

/**
 * Whether it is here, would survive a crash, and reads back as what it should be. Only then may somebody else's write be
 * answered with "it exists": the good bytes are at hand now, and may not be when the damage is found.
 */
export async function isIntact(volume: Volume, kind: Kind, id: Uint8Array, signal: AbortSignal): Promise<boolean> {
  if (!volume.isDurable(kind, id)) return false;
  if (volume.getNow?.(kind, id) !== undefined) return true;
  try {
    // It may have gone while it was read.
    return (await volume.get(kind, id, signal)) !== undefined && volume.isDurable(kind, id);
  } catch (error) {
    if (isRonError(error, 'integrity') || isRonError(error, 'not_ready')) return false;
    throw error;
  }
}

export interface StoredMeta {
  /** A copy; undefined when there is no record that can be read. */
  readonly meta: Uint8Array | undefined;
  /** As `isIntact` says. */
  readonly isIntact: boolean;
}

/** The meta of an object's record, and whether the record is intact. */
export async function storedMeta(volume: Volume, id: Uint8Array, signal: AbortSignal): Promise<StoredMeta> {
  if (!volume.has('object', id)) return { meta: undefined, isIntact: false };
  const now = volume.getNow?.('object', id);
  if (now !== undefined) return { meta: Uint8Array.from(now.meta), isIntact: volume.isDurable('object', id) };
  try {
    const record = await volume.get('object', id, signal);
    return { meta: record?.meta, isIntact: record !== undefined && volume.isDurable('object', id) };
  } catch (error) {
    if (isRonError(error, 'integrity') || isRonError(error, 'not_ready')) return { meta: undefined, isIntact: false };
    throw error;
  }
}
