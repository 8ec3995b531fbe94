/** The state of edge, from `/readyz`, `/metrics` and its packs. */
import type { PackListDto } from '@ron/proto';
import { columns, humanSize } from '../format.ts';
import { byLabel, metricsOf, sumOf } from '../metrics-text.ts';
import { readinessOf } from '../readiness.ts';
import type { ResolvedService } from '../resolve-service.ts';

export interface EdgeStatus {
  readonly url: string;
  readonly is_ready: boolean;
  /** Closed gates with their reasons; empty if all are open. */
  readonly problems: string;
  readonly mode: 'offline' | 'live';
  readonly packs: number;
  readonly bad_packs: number;
  /** Bytes by tier: `ram`, `cas` (disk). */
  readonly cache_bytes: Readonly<Record<string, number>>;
  /** Since the start: by tier, by result, by reason. */
  readonly hits: Readonly<Record<string, number>>;
  readonly fills: Readonly<Record<string, number>>;
  readonly rejects: Readonly<Record<string, number>>;
}

export async function edgeStatus(
  { url, pin }: Pick<ResolvedService, 'url' | 'pin'>,
  { packs, bad }: PackListDto,
  signal: AbortSignal,
): Promise<EdgeStatus> {
  const [{ isReady, reasons }, metrics] = await Promise.all([
    readinessOf(url, signal, undefined, pin),
    metricsOf(url, signal, pin),
  ]);
  return {
    url,
    is_ready: isReady,
    problems: reasons,
    mode: sumOf(metrics, 'edge_live') > 0 ? 'live' : 'offline',
    packs: packs.length,
    bad_packs: bad.length,
    cache_bytes: byLabel(metrics, 'edge_cache_bytes', 'tier'),
    hits: byLabel(metrics, 'edge_hits_total', 'tier'),
    fills: byLabel(metrics, 'edge_fills_total', 'result'),
    rejects: byLabel(metrics, 'edge_rejects_total', 'reason'),
  };
}

const MODES = {
  offline: 'offline: nothing is fetched from origins',
  live: 'live: missing assets are fetched from the origins in fill.allow',
} as const;

export function statusText(status: EdgeStatus): string {
  const { is_ready, problems, packs, bad_packs, cache_bytes } = status;
  const bad = bad_packs === 0 ? '' : `, ${bad_packs} refused: run \`ron pack ls\``;
  const gates = problems === '' ? '' : `: ${problems}`;
  return columns([
    ['edge', `${status.url}, ${is_ready ? 'ready' : 'not ready'}${gates}`],
    ['mode', MODES[status.mode]],
    ['packs', `${packs}${bad}`],
    ['cache', `${humanSize(cache_bytes['ram'] ?? 0)} in memory, ${humanSize(cache_bytes['cas'] ?? 0)} on disk`],
    ['hits', counts(status.hits)],
    ['fills', counts(status.fills)],
    ['rejects', counts(status.rejects)],
  ]);
}

/** The counters that are above zero. */
function counts(by: Readonly<Record<string, number>>): string {
  const shown = Object.entries(by).filter(([, value]) => value > 0);
  return shown.length === 0 ? 'none' : shown.map(([name, value]) => `${name} ${value}`).join(', ');
}
