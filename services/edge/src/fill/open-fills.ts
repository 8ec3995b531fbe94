/** Opens live fill: origins, storage, coalescing, and the metrics of all of them. */
import { isRonError, sched, type Mpsc, type WorkQueue } from '@ron/kernel';
import { Waiters } from '@ron/service';
import type { AssetCache } from '../cache/asset-cache.ts';
import type { FillLog } from '../fill-log/fill-log.ts';
import type { EdgeMeters } from '../metrics.ts';
import type { EdgeContext } from '../service.ts';
import type { OpenStorage } from '../storage.ts';
import { allowedOrigins, requireFillable } from './allow-list.ts';
import { CoalescedFills, LANE, type FillOutcome } from './coalesced-fills.ts';
import type { FilledAsset, Fills, Missing } from './fills.ts';
import { freshnessOf } from './freshness/freshness.ts';
import { StorageObjects } from './objects/storage-objects.ts';
import { Origins, readCa } from './origin/origins.ts';

/** Fills whose job has ended but whose callers were not answered yet. */
const RUNS_SLACK = 64;

export interface OpenFillsInit {
  readonly work: WorkQueue;
  readonly fills: Mpsc<FilledAsset>;
  readonly cache: AssetCache;
  readonly fillLog: Pick<FillLog, 'problem'>;
  readonly storage: OpenStorage | undefined;
  readonly meters: Pick<EdgeMeters, 'fills'>;
}

export interface LiveFills extends Fills, AsyncDisposable {
  /** Why assets cannot be fetched from some origins; undefined if they can. */
  readonly problem: string | undefined;
  /** Closes connections to origins that are not allowed any more. */
  applyConfig(): void;
}

export async function openFills(context: EdgeContext, init: OpenFillsInit): Promise<LiveFills> {
  const { config, current, runtime, metrics, events, overrides, log } = context;
  const { cache, work, fills, fillLog, storage, meters } = init;
  const waiters = runtime.own('waiters', () => new Waiters(LANE, () => current.value.fill.waiters_max));
  const total_ms = runtime.deadline('fill').budget_ms;
  const countRetry = runtime.retryCounter('live_fill');
  const origins = new Origins({
    config: () => current.value,
    cache,
    ca: await readCa(config.fill.ca_file),
    breaker: runtime.breakerKind('origins'),
    total_ms,
    onRetry: countRetry,
    onTimeout: (op) => runtime.io_timeouts.at(op).inc(),
    ...(overrides.network !== undefined && { network: overrides.network }),
  });
  const objects = new StorageObjects({ storage, cache, bytes_max: () => current.value.fill.object_bytes_max });
  const reports = new FailureReports((origin, problem) => events.publish({ kind: 'fill failed', origin, problem }));
  const coalesced = new CoalescedFills({
    work,
    waiters,
    fills,
    cache,
    requireFillable: (missing) => requireFillable(missing, current.value),
    fetch: (missing, stale, deadline) =>
      missing.kind === 'live' ? origins.fetch(missing, stale, deadline) : objects.fetch(missing.key, deadline),
    isFresh: ({ meta }) => freshnessOf(meta, current.value.fill, sched.wall_ms()).isFresh,
    canKeep: ({ meta, source }) =>
      (meta.provenance === undefined || fillLog.problem === undefined) &&
      (cache.problem === undefined || source.ram !== undefined),
    negative_ttl_ms: () => current.value.fill.negative_ttl,
    runs_max: work.capacity + config.edge.workers + RUNS_SLACK,
    outlives_ms: total_ms,
    onEnd: (missing, outcome) => {
      meters.fills.at(resultOf(outcome)).inc();
      reports.onEnd(missing, outcome);
    },
  });
  metrics.counterFrom(
    'breaker_open_total',
    'Fills refused because the breaker of an origin is open.',
    ['target'],
    () => [{ labels: { target: 'origins' }, value: origins.refused_total }],
  );
  let allowed = allowedOrigins(config);
  return {
    get problem() {
      const [first, ...others] = origins.failing;
      if (first === undefined) return undefined;
      return `requests to ${first} fail${others.length === 0 ? '' : `, and to ${others.length} other origins`}`;
    },
    fill: (...given) => coalesced.fill(...given),
    refresh: (...given) => coalesced.refresh(...given),
    applyConfig: () => {
      const next = allowedOrigins(current.value);
      for (const origin of allowed.difference(next)) {
        log.info({ origin }, 'closing the connections to an origin that is not allowed any more');
        origins.disconnect(origin);
      }
      allowed = next;
    },
    async [Symbol.asyncDispose]() {
      await coalesced[Symbol.asyncDispose]();
      await origins[Symbol.asyncDispose]();
    },
  };
}

type Ended = FillOutcome | { readonly error: unknown };

/** Answers that say nothing about the health of the origin. */
const REFUSALS = new Set(['bad_gateway', 'payload_too_large', 'decompress_cap', 'reject_policy', 'busy']);

function resultOf(ended: Ended): 'fetched' | 'revalidated' | 'absent' | 'refused' | 'failed' {
  if (!('error' in ended)) return ended.how === 'none' ? 'absent' : ended.how;
  const { error } = ended;
  return isRonError(error) && REFUSALS.has(error.code) && error.cause === undefined ? 'refused' : 'failed';
}

/** Reports the first failure of an origin after a success. At most as many origins are kept as the allow-list has. */
class FailureReports {
  readonly #report: (origin: string, problem: string) => void;
  readonly #failing = new Set<string>();

  constructor(report: (origin: string, problem: string) => void) {
    this.#report = report;
  }

  onEnd(missing: Missing, ended: Ended): void {
    if (missing.kind !== 'live') return;
    const result = resultOf(ended);
    if (result !== 'failed' && result !== 'refused') this.#failing.delete(missing.origin);
    if (result !== 'failed' || this.#failing.has(missing.origin) || this.#failing.size >= ORIGINS_MAX) return;
    this.#failing.add(missing.origin);
    const { error } = ended as { readonly error: unknown };
    this.#report(missing.origin, error instanceof Error ? error.message : String(error));
  }
}

/** `fill.allow` may be replaced by reloads. */
const ORIGINS_MAX = 1024;
