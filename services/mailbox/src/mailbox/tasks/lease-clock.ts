/**
 * Ends delays and leases whose time has come.
 *
 * Contract: a delayed message that is due becomes visible. A message whose lease has ended is delivered again after a backoff,
 * or becomes a dead letter once its deliveries are used up. Both are measured by the monotonic clock.
 * Bound: one timer, for the next due message; `STEP_MESSAGES` messages of a step, then the event loop runs. If a dead letter
 * cannot be written, its lease is prolonged by `RETRY_MS`.
 * Cancellation: `run` ends by its signal, between two steps.
 */
import { Notify, sched } from '@ron/kernel';
import type { MailboxState } from '../../queue/mailbox-state.ts';
import { NONE, STATE, type Slot } from '../../queue/states.ts';
import type { SettledEntry } from '../../store/records.ts';
import { backoff_ms } from '../settle/backoff.ts';
import { deadEntry } from '../dead/dead-entry.ts';
import type { LastErrors } from '../settle/last-errors.ts';
import type { Settlement, Settling } from '../settle/settling.ts';
import type { Topics } from '../topics/topics.ts';
import type { AgeClock } from '../age-clock.ts';

const STEP_MESSAGES = 256;
const RETRY_MS = 1000;

export interface LeaseClockInit {
  readonly ages: AgeClock;
  readonly state: MailboxState;
  readonly topics: Topics;
  readonly settling: Settling;
  readonly errors: LastErrors;
  readonly appendSettled: (entries: readonly SettledEntry[], signal: AbortSignal) => Promise<unknown>;
  readonly onVisible: (topic: string) => void;
}

export class LeaseClock {
  readonly #init: LeaseClockInit;
  readonly #earlier = new Notify('lease_clock');
  /** The time for which the timer is set. */
  #armed_ms = -Infinity;

  constructor(init: LeaseClockInit) {
    this.#init = init;
  }

  /** A message is due then. */
  onDue(due_ms: number): void {
    if (due_ms >= this.#armed_ms) return;
    this.#armed_ms = -Infinity;
    this.#earlier.notifyOne();
  }

  async run(stopping: AbortSignal): Promise<void> {
    for (;;) {
      stopping.throwIfAborted();
      const { dead, hasMore } = this.step(sched.now_ms());
      await this.commit(dead, stopping);
      if (hasMore) await sched.pause('lease_clock');
      else await this.#untilDue(stopping);
    }
  }

  /** Ends the delays and leases that are due, at most `STEP_MESSAGES`; the caller commits the dead letters. Synchronous. */
  step(now_ms: number): { readonly dead: readonly Settlement[]; readonly hasMore: boolean } {
    const { state, onVisible } = this.#init;
    const dead: Settlement[] = [];
    const changed = new Set<string>();
    let count = 0;
    for (; count < STEP_MESSAGES; count++) {
      const slot = state.due(now_ms);
      if (slot === NONE) break;
      const settlement = this.#end(slot, now_ms);
      if (settlement === undefined) changed.add(state.topicOf(slot).name);
      else dead.push(settlement);
    }
    for (const topic of changed) onVisible(topic);
    return { dead, hasMore: count === STEP_MESSAGES };
  }

  async commit(dead: readonly Settlement[], signal: AbortSignal): Promise<void> {
    const entries = dead.map(({ entry }) => entry);
    try {
      await this.#init.settling.commit(dead, () => this.#init.appendSettled(entries, signal));
    } catch {
      // The disk failed: readiness shows it. They stay leased: no receiver gets a delivery beyond the last.
      this.#prolong(dead);
    }
  }

  /** [mailbox I-7] Ends the delay or the lease of a message. */
  #end(slot: Slot, now_ms: number): Settlement | undefined {
    const { state, topics, settling } = this.#init;
    if (state.stateOf(slot) === STATE.delayed) {
      state.release(slot, undefined);
      return undefined;
    }
    const { attempts } = state.view(slot);
    const topic = topics.of(state.topicOf(slot));
    topic.counts.settled.timeout += 1;
    if (attempts < topics.policyOf(topic).max_deliveries) {
      state.release(slot, now_ms + backoff_ms(attempts));
      return undefined;
    }
    return settling.begin(deadEntry(this.#init, slot, 'max_deliveries'), 'timeout');
  }

  #prolong(dead: readonly Settlement[]): void {
    const { state } = this.#init;
    const due_ms = sched.now_ms() + RETRY_MS;
    for (const { entry, isApplied } of dead) {
      const slot = state.find(entry.seq);
      if (!isApplied && slot !== NONE && !state.isSettling(slot)) state.extend(slot, due_ms);
    }
  }

  async #untilDue(stopping: AbortSignal): Promise<void> {
    const next_ms = this.#init.state.nextDueMs() ?? Infinity;
    this.#armed_ms = next_ms;
    await this.#earlier.notified(stopping, { within_ms: Math.max(0, next_ms - sched.now_ms()) });
  }
}
