/**
 * Checks the running index: its load against its resolvers and queue, its peers, and names that expire soon.
 *
 * The load follows from queueing theory: `rho = rate * time per lookup / resolvers`, which is the total time of all lookups
 * by the uptime and the resolvers. Above 0.7, waiting times grow quickly.
 */
import { IndexClient } from '@ron/client';
import { sched } from '@ron/kernel/core';
import { messageOf } from '../exits.ts';
import { socketUrl, type Home } from '../home.ts';
import type { Io } from '../io.ts';
import { metricsOf, sumOf } from '../metrics-text.ts';
import { withClient } from '../service-client.ts';
import type { Finding } from './finding.ts';

const LOAD_MAX = 0.7;
const DAY_MS = 24 * 3600 * 1000;
const EXPIRY_DAYS = 30;
/** Names that are listed one by one. */
const NAMES_LISTED_MAX = 20;
const CALL_MS = 5000;

export async function checkIndex(home: Home, io: Io, signal: AbortSignal): Promise<Finding[]> {
  const checks = [checkLoad(home, signal), checkPeers(home, io, signal), checkNames(home, io, signal)];
  const results = await Promise.allSettled(checks);
  return results.flatMap((result): readonly Finding[] => {
    if (result.status === 'fulfilled') return result.value;
    return [{ level: 'warn', what: 'index cannot be checked', fix: messageOf(result.reason) }];
  });
}

async function checkLoad(home: Home, signal: AbortSignal): Promise<Finding[]> {
  const metrics = await metricsOf(socketUrl(home, 'index'), signal);
  return loadFindings(metrics);
}

/** From the text of `/metrics`. */
export function loadFindings(metrics: string, now_ms = sched.wall_ms()): Finding[] {
  const value = (series: string): number => sumOf(metrics, series);
  const resolvers = value('tasks_spawned_total{kind="resolver"}') - value('tasks_restarted_total{kind="resolver"}');
  const uptime_s = Math.max(1, now_ms / 1000 - value('process_start_time_seconds'));
  const busy = value('resolve_latency_seconds_sum') / uptime_s;
  const load = busy / Math.max(1, resolvers);
  const what = `${resolvers} resolvers of index, ${Math.round(load * 100)} % busy`;
  const refused = value('busy_rejections_total');
  return [
    load <= LOAD_MAX
      ? { level: 'ok', what }
      : { level: 'warn', what, fix: `set index.resolvers to ${Math.ceil(busy / LOAD_MAX)} or more` },
    ...(refused === 0
      ? []
      : [
          {
            level: 'warn',
            what: `index refused ${refused} requests, because its queue was full`,
            fix: 'set ratelimit.per_ip_rps against a single client, or raise index.resolvers',
          } as const,
        ]),
  ];
}

async function checkPeers(home: Home, io: Io, signal: AbortSignal): Promise<Finding[]> {
  const { mode, known, problem } = await withIndex(home, io, signal, (index) => index.dhtStatus({ signal }));
  if (mode === 'standalone') return [];
  const what = `${known} ${known === 1 ? 'peer' : 'peers'} of the DHT known`;
  if (problem === null && known > 0) return [{ level: 'ok', what }];
  const fix = 'start another member, or join by a new invitation: see "no peers" in docs/operations.md';
  return [{ level: 'warn', what: problem === null ? what : `${what}, ${problem}`, fix }];
}

async function checkNames(home: Home, io: Io, signal: AbortSignal): Promise<Finding[]> {
  const names: NameExpiry[] = [];
  await withIndex(home, io, signal, async (index) => {
    for await (const { record } of index.names({ signal })) {
      if (record.value !== undefined) names.push({ label: record.label, not_after: record.not_after });
    }
  });
  return nameFindings(names);
}

export interface NameExpiry {
  readonly label: string;
  /** Unix seconds. */
  readonly not_after: number;
}

export function nameFindings(names: readonly NameExpiry[], now_ms = sched.wall_ms()): Finding[] {
  const days = ({ not_after }: NameExpiry): number => Math.floor((not_after * 1000 - now_ms) / DAY_MS);
  const soon = names.filter((name) => days(name) < EXPIRY_DAYS).toSorted((a, b) => a.not_after - b.not_after);
  if (names.length === 0) return [];
  if (soon.length === 0) {
    const count = names.length === 1 ? '1 name' : `${names.length} names`;
    return [{ level: 'ok', what: `${count}, none expires within ${EXPIRY_DAYS} days` }];
  }
  const listed = soon.slice(0, NAMES_LISTED_MAX).map((name): Finding => {
    const when = days(name) < 0 ? 'has expired' : `expires in ${days(name)} days`;
    return { level: 'warn', what: `name ${name.label} ${when}`, fix: `ron name renew ${name.label}` };
  });
  const more = soon.length - listed.length;
  return more === 0 ? listed : [...listed, { level: 'warn', what: `${more} more names expire soon` }];
}

function withIndex<T>(home: Home, io: Io, signal: AbortSignal, work: (index: IndexClient) => Promise<T>): Promise<T> {
  const { RON_URL: _, ...env } = io.env;
  const values = { dir: home.dir };
  const open = (init: ConstructorParameters<typeof IndexClient>[0]): IndexClient =>
    new IndexClient({ ...init, deadline_ms: CALL_MS });
  return withClient('index', open, values, { env }, signal, work);
}
