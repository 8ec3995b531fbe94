/**
 * The time limit of background work for one call to a volume.
 *
 * Contract: the outcome of the call, or `timeout` after `BACKGROUND_MS`: a disk that takes longer for one record counts as
 * broken. A later outcome is dropped. Cancellation: of the call itself, by its signal.
 */
import { LATE, RonError, withTimeout } from '@ron/kernel';

const BACKGROUND_MS = 30_000;

export type WithVolumeTimeout = <T>(work: Promise<T>) => Promise<T>;

export async function withVolumeTimeout<T>(work: Promise<T>): Promise<T> {
  const result = await withTimeout(work, BACKGROUND_MS);
  if (result === LATE) throw new RonError('timeout', 'a volume took too long', { op: 'repair' });
  return result;
}
