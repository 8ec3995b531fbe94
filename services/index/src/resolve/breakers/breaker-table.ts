/**
 * The breakers of peers and providers, and the task that owns them.
 *
 * Contract: each target has one breaker with the thresholds in force when it was created. Other tasks use the methods of this
 * table; only the table changes its entries [index I-2]. The janitor advances the state of each breaker with time and drops
 * breakers of targets that are no longer used. The probes of a half-open breaker are requests of lookups: never more than
 * `half_open_probes` are under way.
 * Bound: `TARGETS_MAX` breakers; metrics name `LABELS_MAX` targets and add up the others. Overflow: the least recently used
 * breaker is dropped, a closed one first. The janitor yields to the event loop after each millisecond of work.
 * Cancellation: the signal of the task.
 */
import { Breaker, sched, sleep, type BreakerState, type Cell } from '@ron/kernel';
import type { PeerBreakers, PeerPermit } from '../../dht/breakers.ts';

export const TARGETS_MAX = 4096;
export const LABELS_MAX = 64;
const OTHER = 'other';
const TURN_MS = 1;
const TICK_MS = 1000;
/** Entries that a full table examines for a closed breaker to drop. */
const EXAMINED_MAX = 64;
/** A breaker is dropped after this many error windows without a request. */
const IDLE_WINDOWS = 6;
const CALLS_MIN = 3;
/** A threshold of 1 would never be exceeded. */
const THRESHOLD_MAX = 0.999;

/** The keys `breaker.*`. */
export interface BreakerSettings {
  readonly error_window_s: number;
  readonly trip_threshold: number;
  readonly cooldown_s: number;
  readonly half_open_probes: number;
}

interface Entry {
  readonly breaker: Breaker;
  /** The name of its target in metrics. */
  readonly label: string;
  used_ms: number;
}

interface Totals {
  opened: number;
  rejected: number;
}

/** The state below the lock `breaker_table`. */
export interface BreakerEntries {
  /** In the order of use. */
  readonly byTarget: Map<string, Entry>;
  /** Totals of dropped breakers by label: a counter must not decrease. */
  readonly dropped: Map<string, Totals>;
}

export interface BreakerSeries extends Readonly<Totals> {
  readonly target: string;
  /** Breakers in each state. */
  readonly states: Readonly<Record<BreakerState, number>>;
}

export interface BreakerTableInit {
  readonly entries: Cell<BreakerEntries>;
  readonly settings: () => BreakerSettings;
  /** Called after each change of state. Must not throw. */
  readonly onChange?: ((target: string, state: BreakerState) => void) | undefined;
}

export const newBreakerEntries = (): BreakerEntries => ({ byTarget: new Map(), dropped: new Map() });

export class BreakerTable implements PeerBreakers {
  readonly #init: BreakerTableInit;
  readonly #labels = new Set<string>();

  constructor(init: BreakerTableInit) {
    this.#init = init;
  }

  /** A target without a breaker counts as closed. */
  state(target: string): BreakerState {
    return this.#init.entries.withSync(({ byTarget }) => byTarget.get(target)?.breaker.state ?? 'closed');
  }

  admit(target: string): PeerPermit | undefined {
    return this.of(target).tryAcquire();
  }

  /** The breaker of a target, for `retry`. */
  of(target: string): Breaker {
    return this.#init.entries.withSync((entries) => {
      const known = entries.byTarget.get(target);
      if (known === undefined && entries.byTarget.size >= TARGETS_MAX) dropOne(entries);
      const entry = known ?? this.#newEntry(target);
      entry.used_ms = sched.now_ms();
      entries.byTarget.delete(target);
      entries.byTarget.set(target, entry);
      return entry.breaker;
    });
  }

  /** Targets whose breaker is open or half-open. */
  notClosed(): { readonly target: string; readonly state: 'open' | 'half_open' }[] {
    return this.#init.entries.withSync(({ byTarget }) =>
      [...byTarget].flatMap(([target, { breaker }]) => {
        const { state } = breaker;
        return state === 'closed' ? [] : [{ target, state }];
      }),
    );
  }

  get size(): number {
    return this.#init.entries.withSync(({ byTarget }) => byTarget.size);
  }

  /** For metrics: one series for each of the first `LABELS_MAX` targets, and one for all others. */
  series(): BreakerSeries[] {
    return this.#init.entries.withSync(({ byTarget, dropped }) => {
      const sums = new Map<string, Totals & { states: Record<BreakerState, number> }>();
      const sumOf = (label: string) => {
        const sum = sums.get(label) ?? { opened: 0, rejected: 0, states: { closed: 0, open: 0, half_open: 0 } };
        sums.set(label, sum);
        return sum;
      };
      for (const [label, totals] of dropped) add(sumOf(label), totals.opened, totals.rejected);
      for (const { breaker, label } of byTarget.values()) {
        const sum = sumOf(label);
        add(sum, breaker.opened_total, breaker.rejected_total);
        sum.states[breaker.state] += 1;
      }
      return [...sums].map(([target, sum]) => ({ target, ...sum }));
    });
  }

  /** The task `breaker_janitor`. */
  async run(stopping: AbortSignal): Promise<void> {
    for (;;) {
      await sleep(TICK_MS, stopping, 'breaker_janitor');
      await this.#roll();
    }
  }

  /** Advances every breaker with time and drops idle ones. */
  async #roll(): Promise<void> {
    const { entries, settings } = this.#init;
    const idle_ms = settings().error_window_s * 1000 * IDLE_WINDOWS;
    const targets = entries.withSync(({ byTarget }) => [...byTarget.keys()]);
    let began_ms = sched.now_ms();
    for (const target of targets) {
      this.#rollOne(target, idle_ms);
      if (sched.now_ms() - began_ms < TURN_MS) continue;
      await sched.pause('breaker_janitor');
      began_ms = sched.now_ms();
    }
  }

  #rollOne(target: string, idle_ms: number): void {
    this.#init.entries.withSync((entries) => {
      const entry = entries.byTarget.get(target);
      if (entry === undefined) return;
      if (sched.now_ms() - entry.used_ms > idle_ms) drop(entries, target, entry);
      // Reading the state makes the transitions that depend on time.
      void entry.breaker.state;
    });
  }

  #newEntry(target: string): Entry {
    const { error_window_s, trip_threshold, cooldown_s, half_open_probes } = this.#init.settings();
    if (this.#labels.size < LABELS_MAX) this.#labels.add(target);
    const breaker = new Breaker(target, {
      error_window_ms: error_window_s * 1000,
      trip_threshold: Math.min(trip_threshold, THRESHOLD_MAX),
      calls_min: CALLS_MIN,
      cooldown_ms: cooldown_s * 1000,
      half_open_probes,
      ...(this.#init.onChange !== undefined && { onChange: this.#init.onChange }),
    });
    return { breaker, label: this.#labels.has(target) ? target : OTHER, used_ms: 0 };
  }
}

function add(sum: Totals, opened: number, rejected: number): void {
  sum.opened += opened;
  sum.rejected += rejected;
}

/** Makes room: the least recently used closed breaker among the oldest, otherwise the oldest. */
function dropOne(entries: BreakerEntries): void {
  let examined = 0;
  for (const [target, entry] of entries.byTarget) {
    if (entry.breaker.state === 'closed') return drop(entries, target, entry);
    if (++examined >= EXAMINED_MAX) break;
  }
  const [target, entry] = entries.byTarget.entries().next().value!;
  drop(entries, target, entry);
}

function drop({ byTarget, dropped }: BreakerEntries, target: string, { breaker, label }: Entry): void {
  byTarget.delete(target);
  const totals = dropped.get(label) ?? { opened: 0, rejected: 0 };
  add(totals, breaker.opened_total, breaker.rejected_total);
  dropped.set(label, totals);
}
