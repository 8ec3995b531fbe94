/** A message between its admission and the end of its sync. */
import { sched, type Parked } from '@ron/kernel';
import type { MessageInput, MessageMeta } from '../../store/records.ts';
import type { Topic } from '../topics/topics.ts';

export interface PendingSendInit {
  readonly topic: Topic;
  readonly id: Uint8Array;
  readonly meta: MessageMeta;
  readonly payload: Uint8Array;
  /** Of the idempotency key; undefined without one. */
  readonly key_hash: Uint8Array | undefined;
  /** Monotonic; undefined if it is visible at once. */
  readonly due_ms: number | undefined;
}

export class PendingSend implements MessageInput {
  readonly topic: Topic;
  readonly id: Uint8Array;
  readonly meta: MessageMeta;
  readonly payload: Uint8Array;
  readonly key_hash: Uint8Array | undefined;
  readonly due_ms: number | undefined;
  /** Set in the step of the sync; undefined before. */
  seq: number | undefined = undefined;
  #waiters: Parked<void>[] | undefined = undefined;

  constructor({ topic, id, meta, payload, key_hash, due_ms }: PendingSendInit) {
    this.topic = topic;
    this.id = id;
    this.meta = meta;
    this.payload = payload;
    this.key_hash = key_hash;
    this.due_ms = due_ms;
  }

  /** Resolves when its sync has ended, with either outcome. */
  ended(): Promise<void> {
    const parked = sched.park<void>('send.ended');
    this.#waiters = [...(this.#waiters ?? []), parked];
    return parked.promise;
  }

  end(): void {
    for (const parked of this.#waiters ?? []) parked.wake();
    this.#waiters = undefined;
  }
}
