/**
 * Applies the limits of age, count and bytes.
 *
 * Contract: a waiting message older than `max_age` becomes a dead letter (`expired`) once it is not leased. Dead letters
 * beyond their age, count or bytes are dropped, the oldest first; each drop is counted and logged. Nothing else is dropped.
 * Bound: `PAGE` messages in a step, then the event loop runs. One pass over the topics every `EVERY_MS`; all dead letters,
 * which are not in the order of their times, and all messages are checked every `ALL_AGES_EVERY_MS`.
 * Cancellation: `run` ends by its signal, between two steps. A disk that fails ends the pass; the next one probes the disk
 * and tries again.
 */
import { sched, sleep } from '@ron/kernel';
import { formatUlid, type DropReason } from '@ron/proto';
import type { MailboxEvent } from '../../events.ts';
import type { MailboxState } from '../../queue/mailbox-state.ts';
import type { SeenKeys } from '../../queue/seen-keys.ts';
import { NONE, STATE, type Slot } from '../../queue/states.ts';
import type { SettledEntry } from '../../store/records.ts';
import { deadEntry } from '../dead/dead-entry.ts';
import type { LastErrors } from '../settle/last-errors.ts';
import type { MessageReads } from '../receive/message-reads.ts';
import type { Settling } from '../settle/settling.ts';
import type { Topic, Topics } from '../topics/topics.ts';
import type { AgeClock } from '../age-clock.ts';

const EVERY_MS = 1000;
const ALL_AGES_EVERY_MS = 60_000;
const PAGE = 128;
const SEEN_STEP = 1024;
const LOGGED_IDS = 8;

export interface RetentionInit {
  readonly ages: AgeClock;
  readonly state: MailboxState;
  readonly seen: SeenKeys;
  readonly topics: Topics;
  readonly settling: Settling;
  readonly errors: LastErrors;
  readonly reads: MessageReads;
  readonly appendSettled: (entries: readonly SettledEntry[], signal: AbortSignal) => Promise<unknown>;
  /** After a failure, learns whether the disk accepts writes again. */
  readonly probeDisk: (signal: AbortSignal) => Promise<void>;
  readonly onEvent: (event: MailboxEvent) => void;
}

export class Retention {
  readonly #init: RetentionInit;
  #dead_ages_ms = -Infinity;

  constructor(init: RetentionInit) {
    this.#init = init;
  }

  async run(stopping: AbortSignal): Promise<void> {
    for (;;) {
      await sleep(EVERY_MS, stopping, 'retention');
      // Readiness must not wait for the next request.
      await this.#init.probeDisk(stopping);
      // The disk failed: readiness shows it, and the next pass tries again.
      await this.pass(stopping).catch(() => undefined);
    }
  }

  /** One pass over all topics. */
  async pass(signal: AbortSignal): Promise<void> {
    const { seen, topics } = this.#init;
    while (seen.expire(sched.now_ms(), SEEN_STEP)) await sched.pause('retention');
    const checksAges = sched.now_ms() - this.#dead_ages_ms >= this.#deadAgesEvery_ms();
    if (checksAges) this.#dead_ages_ms = sched.now_ms();
    for (const topic of topics.all()) {
      await this.#expire(topic, checksAges, signal);
      await this.#dropBeyond(topic, signal);
      if (checksAges) await this.#dropOld(topic, signal);
    }
  }

  /**
   * [mailbox I-8] Waiting messages beyond their age become dead letters. Messages are in the order of their times, unless the
   * wall clock was set back between two starts: `isThorough` looks at all of them.
   */
  async #expire(topic: Topic, isThorough: boolean, signal: AbortSignal): Promise<void> {
    const { state } = this.#init;
    const { max_age_ms } = this.#init.topics.policyOf(topic);
    const now_ms = this.#init.ages.now_ms();
    const isOld = (slot: Slot): boolean => state.sentMs(slot) + max_age_ms <= now_ms;
    for (let after = 0; ;) {
      const page = state.waitingAfter(topic.state, after, PAGE);
      const last = page.at(-1);
      if (last === undefined) return;
      after = state.seqOf(last);
      const isLast = page.length < PAGE || !(isThorough || page.every(isOld));
      const old = page.filter(isOld);
      const free = old.filter((slot) => !state.isSettling(slot) && state.stateOf(slot) !== STATE.leased);
      if (free.length > 0)
        await this.#settle(
          free.map((slot) => deadEntry(this.#init, slot, 'expired')),
          'age',
          signal,
        );
      if (isLast) return;
      await sched.pause('retention');
    }
  }

  /** Drops the oldest dead letters until count and bytes are within the limits. */
  async #dropBeyond(topic: Topic, signal: AbortSignal): Promise<void> {
    const { state } = this.#init;
    for (;;) {
      const { dead_max_messages, dead_max_bytes } = this.#init.topics.policyOf(topic);
      const count = topic.state.dead - dead_max_messages;
      const bytes = topic.state.dead_bytes - dead_max_bytes;
      if (count <= 0 && bytes <= 0) return;
      const slots = state.deadAfter(topic.state, 0, count > 0 ? Math.min(count, PAGE) : PAGE);
      const dropped = await this.#drop(
        topic,
        count > 0 ? slots : this.#first(slots, bytes),
        count > 0 ? 'count' : 'bytes',
        signal,
      );
      // All of them are being replayed or deleted.
      if (dropped === 0) return;
      await sched.pause('retention');
    }
  }

  /** The first slots that have at least these payload bytes. */
  #first(slots: readonly Slot[], bytes: number): Slot[] {
    let sum = 0;
    return slots.filter((slot) => {
      const isNeeded = sum < bytes;
      sum += this.#init.state.payloadBytes(slot);
      return isNeeded;
    });
  }

  async #dropOld(topic: Topic, signal: AbortSignal): Promise<void> {
    const { state } = this.#init;
    const { dead_max_age_ms } = this.#init.topics.policyOf(topic);
    const before_ms = this.#init.ages.now_ms() - dead_max_age_ms;
    for (let after = 0; ;) {
      const page = state.deadAfter(topic.state, after, PAGE);
      const last = page.at(-1);
      if (last === undefined) return;
      after = state.seqOf(last);
      const old = page.filter((slot) => state.view(slot).dead!.dead_ms <= before_ms);
      await this.#drop(topic, old, 'age', signal);
      await sched.pause('retention');
    }
  }

  /** [mailbox I-8] Counts and logs the dead letters that it removes. */
  async #drop(topic: Topic, slots: readonly Slot[], reason: DropReason, signal: AbortSignal): Promise<number> {
    const { state, reads } = this.#init;
    const seqs = slots.filter((slot) => !state.isSettling(slot)).map((slot) => state.seqOf(slot));
    if (seqs.length === 0) return 0;
    const ids: string[] = [];
    for (const seq of seqs.slice(0, LOGGED_IDS)) {
      const read = await reads.readMeta(seq, signal);
      ids.push(read === undefined ? `seq ${seq}` : formatUlid(read.id));
    }
    const free = seqs.filter((seq) => state.findDead(seq) !== NONE);
    const entries = free.map((seq) => ({ outcome: 'removed', seq, topic: topic.name }) as const);
    await this.#settle(entries, 'drop', signal);
    topic.counts.dropped[reason] += free.length;
    this.#init.onEvent({ kind: 'dead letters dropped', topic: topic.name, reason, count: free.length, ids });
    return free.length;
  }

  async #settle(entries: readonly SettledEntry[], by: 'age' | 'drop', signal: AbortSignal): Promise<void> {
    const settlements = entries.map((entry) => this.#init.settling.begin(entry, by));
    await this.#init.settling.commit(settlements, () => this.#init.appendSettled(entries, signal));
  }

  /** A shorter age needs more frequent checks. */
  #deadAgesEvery_ms(): number {
    const { topics } = this.#init;
    const ages_ms = topics.all().map((topic) => topics.policyOf(topic).dead_max_age_ms);
    return Math.min(ALL_AGES_EVERY_MS, ...ages_ms);
  }
}
