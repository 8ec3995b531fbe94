/**
 * The brownout sentinel: finds unhealthy upstreams each second, and sheds the work that needs them.
 *
 * Contract: a brownout begins and ends by the rules of `Brownout` in the kernel, with the keys `brownout.*`: more than
 * `error_rate` of the calls in `window` failed, and at least 5; or p95 reached `p95` over at least 20 calls in a minute. It ends
 * after `dwell` below half and four fifths of these, judged by samples since it began. p95 is exact to 2.3 %.
 * `/put` is shed by a brownout of storage or passport; a brownout of mailbox spools webhooks. Reads go on.
 * Probes: shed traffic gives no samples, so the sentinel calls the upstream in each second of a brownout without one. A second
 * with work has no probe, because fast probes would hide slow work (drained webhooks and reads go on).
 * Flapping: a probe is cheaper than work, so a brownout may end too early. Both windows start empty then, so at least 5 errors or
 * 20 calls of real work decide on the next one: at most one begins per `dwell`, and work is tried for about a second between.
 * Bound: one probe for each upstream at a time, each with a deadline. Overflow: events, as declared.
 * Cancellation: `run` ends with either signal of the task and aborts its probes. Windows use the monotonic clock.
 */
import { sched, sleep, type Broadcast, type Deadline, type TaskContext } from '@ron/kernel';
import { BROWNOUT_UPSTREAMS, type BrownoutDto, type BrownoutRequest, type BrownoutUpstream } from '@ron/proto';
import type { InteropEvent } from '../events.ts';
import type { ManualMode } from './manual-mode.ts';
import type { Upstream } from './upstream.ts';

export interface WatchedUpstream {
  readonly upstream: Upstream;
  /** A cheap request that fails if the upstream cannot work. Undefined if it is not configured. */
  readonly probe: ((signal: AbortSignal) => Promise<unknown>) | undefined;
}

export interface SentinelInit {
  readonly upstreams: Readonly<Record<BrownoutUpstream, WatchedUpstream>>;
  readonly manual: ManualMode;
  /**
   * Between two evaluations. Well below `dwell`: a brownout ends only if the last `dwell` has a sample, and the newest probe is
   * up to `tick_ms` old.
   */
  readonly tick_ms: number;
  readonly probing: (signal: AbortSignal) => Deadline;
  readonly events: Pick<Broadcast<InteropEvent>, 'publish'>;
}

export class Sentinel {
  readonly #init: SentinelInit;
  /** `sampled_total` of each upstream at the last evaluation. */
  readonly #seen = new Map<BrownoutUpstream, number>();

  constructor(init: SentinelInit) {
    this.#init = init;
  }

  sheds(name: BrownoutUpstream): boolean {
    return this.#init.upstreams[name].upstream.sheds;
  }

  /** Whether `/put` is refused: it needs both. */
  get shedsPut(): boolean {
    return this.sheds('storage') || this.sheds('passport');
  }

  mode(): BrownoutDto {
    const { upstreams, manual } = this.#init;
    const all = BROWNOUT_UPSTREAMS.flatMap((name) => upstreams[name].upstream.describe(name) ?? []);
    return { ...manual.request, active: all.some(({ sheds }) => sheds), upstreams: all };
  }

  /** For the gate `brownout`. */
  get problem(): string | undefined {
    const { upstreams, manual } = this.#init;
    const { mode, why, until_ms } = manual.request;
    if (mode === 'off') return undefined;
    if (mode === 'on') {
      const reason = why === undefined ? '' : `: ${why}`;
      return `bridges are shed until ${new Date(until_ms!).toISOString()}${reason}`;
    }
    const breaches = BROWNOUT_UPSTREAMS.flatMap((name) => upstreams[name].upstream.breach ?? []);
    return breaches.length === 0 ? undefined : breaches.join('; ');
  }

  set(request: BrownoutRequest): void {
    this.#init.manual.set(request);
    this.#init.events.publish({ kind: 'brownout set', mode: request.mode, why: request.why });
  }

  /** The task `brownout_sentinel`. */
  async run({ signal, stopping }: Pick<TaskContext, 'signal' | 'stopping'>): Promise<void> {
    const over = AbortSignal.any([signal, stopping]);
    while (!over.aborted) {
      const begun_ms = sched.now_ms();
      await this.tick(over);
      const wait_ms = Math.max(0, begun_ms + this.#init.tick_ms - sched.now_ms());
      await sleep(wait_ms, over, 'brownout_sentinel').catch(() => undefined);
    }
  }

  /** One evaluation of all upstreams. */
  async tick(signal: AbortSignal): Promise<void> {
    const { manual, events } = this.#init;
    if (manual.expire()) events.publish({ kind: 'brownout set', mode: 'auto', why: 'the manual mode has ended' });
    for (const name of BROWNOUT_UPSTREAMS) this.#evaluate(name);
    await Promise.all(BROWNOUT_UPSTREAMS.map((name) => this.#probe(name, signal)));
  }

  #evaluate(name: BrownoutUpstream): void {
    const { upstreams, events } = this.#init;
    const { upstream } = upstreams[name];
    const change = upstream.evaluate();
    if (change === 'began') events.publish({ kind: 'brownout began', upstream: name, problem: upstream.breach! });
    if (change === 'ended') events.publish({ kind: 'brownout ended', upstream: name });
  }

  async #probe(name: BrownoutUpstream, signal: AbortSignal): Promise<void> {
    const { upstream, probe } = this.#init.upstreams[name];
    const isSampled = this.#seen.get(name) !== upstream.sampled_total;
    this.#seen.set(name, upstream.sampled_total);
    if (!upstream.isInBreach || isSampled || probe === undefined) return;
    using deadline = this.#init.probing(signal);
    await upstream.probe(deadline, probe);
  }
}
