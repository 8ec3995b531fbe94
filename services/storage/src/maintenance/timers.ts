/** Periodic tasks of storage. Each ends by its signal, and begins nothing once a drain has begun. */
import type { Uploads } from '@ron/cas';
import { sched, sleep } from '@ron/kernel';
import type { Log } from '@ron/telemetry';
import type { StorageConfig } from '../config.ts';
import type { Volumes } from '../volumes/volumes.ts';

const EXPIRE_EVERY_MS = 60_000;
/** How often a compaction that is due checks whether absent volumes have returned. */
const COMPACT_RETRY_MS = 10_000;

export interface TimerInit {
  readonly isStopping: () => boolean;
  readonly log: Pick<Log, 'warn'>;
}

export interface CompactTimerInit extends TimerInit {
  readonly current: { readonly value: StorageConfig };
  readonly volumes: Pick<Volumes, 'incomplete'>;
  readonly start: () => void;
}

/** Removes unfinished uploads that have expired. */
export async function uploadExpiry(uploads: Uploads, init: TimerInit, stopping: AbortSignal): Promise<void> {
  const { isStopping, log } = init;
  for (;;) {
    await sleep(EXPIRE_EVERY_MS, stopping, 'upload_expiry');
    if (isStopping()) return;
    await uploads.expire().catch((error: unknown) => log.warn({ err: error }, 'failed to expire uploads'));
  }
}

/** Starts a compaction every `storage.compact_interval`, give or take a tenth, once all volumes are present. */
export async function compactTimer(init: CompactTimerInit, stopping: AbortSignal): Promise<void> {
  const { current, volumes, isStopping, log, start } = init;
  for (;;) {
    await sleep(current.value.storage.compact_interval * (0.9 + sched.random() / 5), stopping, 'compact_timer');
    if (volumes.incomplete !== undefined) log.warn({ reason: volumes.incomplete }, 'compaction is postponed');
    while (volumes.incomplete !== undefined) await sleep(COMPACT_RETRY_MS, stopping, 'compact_timer');
    if (isStopping()) return;
    start();
  }
}
