/**
 * The upstreams of interop, by its configuration: storage, mailbox, passport and kms.
 *
 * Contract: an upstream without a URL exists and refuses every call. Each has a breaker of its own.
 * `connect_ms` bounds each new connection; clients keep theirs alive. Pass it to every client of an upstream.
 */
import { JsonCalls } from '@ron/client/calls';
import { reach } from '@ron/client/node';
import { Brownout, POLICIES, type Broadcast, type BrownoutInit, type Cell, type Deadline } from '@ron/kernel';
import type { BrownoutUpstream, UpstreamName } from '@ron/proto';
import type { ServiceRuntime } from '@ron/service';
import type { concurrency } from '../concurrency.ts';
import type { InteropConfig } from '../config.ts';
import type { InteropEvent } from '../events.ts';
import { MailboxAccess } from './mailbox-access.ts';
import { ManualMode, type ManualState } from './manual-mode.ts';
import { Sentinel, type WatchedUpstream } from './sentinel.ts';
import { Upstream } from './upstream.ts';

const TICK_MS = 1000;

export interface UpstreamsInit {
  readonly config: Pick<InteropConfig, 'interop' | 'auth' | 'brownout'>;
  readonly runtime: ServiceRuntime<typeof concurrency>;
  readonly policy: Cell<ManualState>;
  readonly events: Pick<Broadcast<InteropEvent>, 'publish'>;
}

export interface Upstreams {
  readonly storage: Upstream;
  readonly mailbox: Upstream;
  readonly passport: Upstream;
  readonly kms: Upstream;
  readonly sentinel: Sentinel;
  /** Undefined without `interop.mailbox_url`. */
  readonly sends: MailboxAccess | undefined;
  readonly connect_ms: number;
  /** For the gates of `/readyz`. Kms closes `receipts` and `providers`, which have their own. */
  readonly problems: Readonly<Record<BrownoutUpstream | 'brownout', () => string | undefined>>;
}

export function openUpstreams(init: UpstreamsInit): Upstreams {
  const { config, runtime, policy, events } = init;
  const connect_ms = budgetOf(runtime.deadline('connect'));
  const manual = new ManualMode(policy);
  const limits = brownoutLimits(config.brownout);
  const targets = targetsOf(config);
  const open = (name: UpstreamName): Upstream =>
    new Upstream({
      name,
      breaker: runtime.breaker('upstreams', { target: name }),
      slow_ms: limits.latency.enter_ms,
      missing: targets[name].url === undefined ? `${targets[name].key} is not set` : undefined,
      onConnectTimeout: () => runtime.io_timeouts.at('connect').inc(),
      ...(name !== 'kms' && { brownout: { state: new Brownout(limits), limits, manual } }),
    });
  const [storage, mailbox, passport, kms] = [open('storage'), open('mailbox'), open('passport'), open('kms')];
  const watched = (upstream: Upstream): WatchedUpstream => ({
    upstream,
    probe: probeOf(targets[upstream.name], connect_ms),
  });
  const sentinel = new Sentinel({
    upstreams: { storage: watched(storage), mailbox: watched(mailbox), passport: watched(passport) },
    manual,
    tick_ms: Math.min(TICK_MS, limits.dwell_ms / 4),
    probing: (signal) => runtime.deadline('probe', { signal }),
    events,
  });
  const sends = openSends(init, mailbox, connect_ms);
  const problems = {
    brownout: () => sentinel.problem,
    storage: () => storage.problem,
    mailbox: () => (sends ?? mailbox).problem,
    passport: () => passport.problem,
  };
  return { storage, mailbox, passport, kms, sentinel, sends, connect_ms, problems };
}

export function brownoutLimits(config: InteropConfig['brownout']): BrownoutInit {
  const { error_rate, window, p95, dwell } = config;
  return {
    errors: { window_ms: window, enter: error_rate, leave: error_rate / 2, errors_min: 5 },
    latency: { window_ms: 60_000, enter_ms: p95, leave_ms: p95 * 0.8, calls_min: 20, quantile: 0.95 },
    dwell_ms: dwell,
  };
}

interface Target {
  readonly key: string;
  readonly url: string | undefined;
  readonly pin?: string | undefined;
}

function targetsOf({ interop, auth }: UpstreamsInit['config']): Readonly<Record<UpstreamName, Target>> {
  return {
    storage: { key: 'interop.storage_url', url: interop.storage_url },
    mailbox: { key: 'interop.mailbox_url', url: interop.mailbox_url },
    passport: { key: 'auth.passport_url', url: auth.passport_url, pin: auth.passport_pin },
    kms: { key: 'auth.kms_url', url: auth.kms_url, pin: auth.kms_pin },
  };
}

/** `/readyz` fails while a hard gate of the upstream is closed, such as a replay. It needs no capability. */
function probeOf({ url, pin }: Target, connect_ms: number): WatchedUpstream['probe'] {
  if (url === undefined) return undefined;
  const calls = new JsonCalls('', { ...reach(url, pin), connect_ms, policy: POLICIES.once });
  return (signal) => calls.get('probe', 'readyz', signal);
}

function openSends(
  { config, runtime }: UpstreamsInit,
  upstream: Upstream,
  connect_ms: number,
): MailboxAccess | undefined {
  const { mailbox_url: url, mailbox_capability_file: capability_file } = config.interop;
  if (url === undefined || capability_file === undefined) return undefined;
  return new MailboxAccess({
    upstream,
    url,
    capability_file,
    connect_ms,
    sending: () => runtime.deadline('mailbox'),
    retry: (work, within) => runtime.retry('deliver', work, within),
  });
}

/** The budget of a declared deadline, for parts that count the time themselves. */
export function budgetOf(deadline: Deadline): number {
  using own = deadline;
  return own.budget_ms;
}
