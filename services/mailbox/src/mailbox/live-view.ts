/** The view of the state that compaction needs. */
import { assert, sched } from '@ron/kernel';
import type { MailboxState } from '../queue/mailbox-state.ts';
import { idempotencyHash, type SeenKey, type SeenKeys } from '../queue/seen-keys.ts';
import { NONE, STATE } from '../queue/states.ts';
import type { LiveMessages, Liveness } from '../store/compaction/live-messages.ts';
import type { SeenEntry } from '../store/records.ts';
import type { LastErrors } from './settle/last-errors.ts';
import type { Settling } from './settle/settling.ts';
import type { Topics } from './topics/topics.ts';
import type { AgeClock } from './age-clock.ts';

export interface LiveViewInit {
  readonly ages: AgeClock;
  readonly state: MailboxState;
  readonly seen: SeenKeys;
  readonly topics: Topics;
  readonly errors: LastErrors;
  readonly settling: Settling;
  readonly damaged: (seq: number, signal: AbortSignal) => Promise<void>;
}

export class LiveView implements LiveMessages {
  readonly #init: LiveViewInit;

  constructor(init: LiveViewInit) {
    this.#init = init;
  }

  find(seq: number): Liveness {
    const { state, errors } = this.#init;
    const slot = state.find(seq);
    if (slot === NONE) return { kind: 'gone' };
    if (state.isSettling(slot)) return { kind: 'settling', ended: () => this.#settled(seq) };
    const view = state.view(slot);
    const { place, delivery, attempts, nonce, due_ms, dead } = view;
    const rest_ms = due_ms === undefined ? 0 : Math.max(0, Math.ceil(due_ms - sched.now_ms()));
    const until_ms = sched.wall_ms() + rest_ms;
    const isLeased = view.state === STATE.leased;
    return {
      kind: 'held',
      place,
      delivery,
      attempts,
      nonce,
      until_ms: isLeased ? until_ms : 0,
      // The rest of the lease or the delay: a start clamps to it.
      visibility_ms: rest_ms,
      not_before_ms: view.state === STATE.delayed ? until_ms : 0,
      error: errors.of(seq),
      dead,
    };
  }

  liveBytesOf(segment: number): number {
    return this.#init.state.liveBytes(segment);
  }

  get live_bytes(): number {
    return this.#init.state.live_bytes;
  }

  get seen_keys(): number {
    return this.#init.seen.size;
  }

  seenOf(name: string, idempotency_key: string, seq: number): SeenEntry | undefined {
    const found = this.#find(name, idempotencyHash(name, idempotency_key));
    if (found?.seq !== seq) return undefined;
    const { hash, id, b3 } = found;
    const until_ms = Math.max(0, Math.ceil(sched.wall_ms() + found.until_ms - sched.now_ms()));
    return { topic: name, hash, id, seq, b3, until_ms };
  }

  isSeen({ topic, hash, seq }: SeenEntry): boolean {
    return this.#find(topic, hash)?.seq === seq;
  }

  damaged(seq: number, signal: AbortSignal): Promise<void> {
    return this.#init.damaged(seq, signal);
  }

  #settled(seq: number): Promise<void> {
    const settlement = this.#init.settling.of(seq);
    assert(settlement !== undefined, 'a message is settling by a settlement');
    return settlement.ended();
  }

  #find(name: string, hash: Uint8Array): SeenKey | undefined {
    const topic = this.#init.topics.find(name);
    return topic && this.#init.seen.find(topic.state, hash, sched.now_ms());
  }
}
