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
