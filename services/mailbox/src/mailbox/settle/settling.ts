/**
 * Settlements that are syncing: acks, dead letters and removals.
 *
 * Contract: from `begin` to the end of the sync, no receiver, timer or compaction touches the messages. The state changes in
 * the synchronous step of the sync (`applied`, called by the record target). When the append fails, the messages that were
 * not made durable go back to the state that they had.
 * Bound: by the callers: at most 128 messages of each queued request, and a batch of each task.
 * Cancellation: an append whose signal aborts before it is written has changed nothing; after that its outcome counts.
 */
import { assert, sched, touch, type Parked } from '@ron/kernel';
import type { MailboxState } from '../../queue/mailbox-state.ts';
import { NONE } from '../../queue/states.ts';
import type { SettledEntry } from '../../store/records.ts';

/** The cause of a settlement. */
export type SettledBy = 'ack' | 'nack' | 'timeout' | 'age' | 'damage' | 'replay' | 'delete' | 'drop';

export class Settlement {
  readonly entry: SettledEntry;
  readonly by: SettledBy;
  isApplied = false;
  #isEnded = false;
  #waiters: Parked<void>[] = [];

  constructor(entry: SettledEntry, by: SettledBy) {
    this.entry = entry;
    this.by = by;
  }

  /** Resolves when the sync has ended, with either outcome. */
  ended(): Promise<void> {
    if (this.#isEnded) return Promise.resolve();
    const parked = sched.park<void>('settlement.ended');
    this.#waiters.push(parked);
    return parked.promise;
  }

  end(): void {
    this.#isEnded = true;
    for (const parked of this.#waiters.splice(0)) parked.wake();
  }
}

export interface SettlingInit {
  readonly state: MailboxState;
  /** Called after messages went back to the state that they had. */
  readonly onUndone: (topics: ReadonlySet<string>) => void;
}

export class Settling {
  readonly #init: SettlingInit;
  readonly #bySeq = new Map<number, Settlement>();

  constructor(init: SettlingInit) {
    this.#init = init;
  }

  of(seq: number): Settlement | undefined {
    touch(this);
    return this.#bySeq.get(seq);
  }

  /** Marks messages as settling. The caller calls `commit` with them in the same synchronous step. */
  begin(entry: SettledEntry, by: SettledBy): Settlement {
    touch(this);
    const slot = this.#init.state.find(entry.seq);
    assert(slot !== NONE, 'a message that is settled is held');
    this.#init.state.beginSettle(slot);
    const settlement = new Settlement(entry, by);
    this.#bySeq.set(entry.seq, settlement);
    return settlement;
  }

  /** Appends settlements; resolves when they are durable. */
  async commit(settlements: readonly Settlement[], append: () => Promise<unknown>): Promise<void> {
    if (settlements.length === 0) return;
    try {
      await append();
    } catch (error) {
      // A rotation may have made the group durable before a later part of its batch failed.
      if (!settlements.every(({ isApplied }) => isApplied)) throw error;
    } finally {
      touch(this);
      this.#end(settlements);
    }
  }

  /** Called in the step of the sync. Returns the settlement of a live call. */
  applied(seq: number): Settlement | undefined {
    touch(this);
    const settlement = this.#bySeq.get(seq);
    if (settlement !== undefined) settlement.isApplied = true;
    return settlement;
  }

  #end(settlements: readonly Settlement[]): void {
    const undone = new Set<string>();
    for (const settlement of settlements) {
      const { entry, isApplied } = settlement;
      // A dead letter may be settling again, for its removal.
      if (this.#bySeq.get(entry.seq) === settlement) this.#bySeq.delete(entry.seq);
      if (isApplied) continue;
      this.#init.state.undoSettle(this.#init.state.find(entry.seq));
      undone.add(entry.topic);
    }
    for (const settlement of settlements) settlement.end();
    if (undone.size > 0) this.#init.onUndone(undone);
  }
}
