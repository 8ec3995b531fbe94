/**
 * Deliveries: leases of visible messages, the answers with their payloads, and the return of messages whose receiver left.
 *
 * Contract: a message is leased in RAM in the synchronous step in which it is taken, so no other receiver gets it. The lease
 * is written, not synced, before the answer. If that fails, or the disk does not answer, the messages are ready again and the
 * delivery does not count. A message whose record is damaged becomes a dead letter. A message that the disk cannot read is
 * left out and stays leased: it is delivered again after its visibility, or becomes a dead letter after its last delivery.
 * Bound: 128 messages and `bytes_max` payload bytes of an answer; one message always fits.
 * Cancellation: a receiver whose signal aborts before it has the answer gives its messages back.
 */
import { sched } from '@ron/kernel';
import type { ReceivedMessage } from '@ron/proto';
import type { MailboxState } from '../../queue/mailbox-state.ts';
import { NONE, STATE, type Slot } from '../../queue/states.ts';
import type { LeaseEntry } from '../../store/records.ts';
import type { MessageReads, ReadMessage } from './message-reads.ts';
import { Nonces } from '../new-id.ts';
import type { Delivery } from '../operations.ts';
import { messageDto } from './message-dto.ts';
import { encodeToken } from './token.ts';
import type { Topic, Topics } from '../topics/topics.ts';

/** The limits of one answer. */
export interface Wanted {
  readonly max: number;
  readonly bytes_max: number;
  readonly visibility_ms: number;
}

/** Messages that were leased in one step. */
export interface Taken {
  readonly topic: Topic;
  readonly leases: readonly LeaseEntry[];
}

export interface DeliveriesInit {
  readonly state: MailboxState;
  readonly topics: Topics;
  readonly reads: Pick<MessageReads, 'read'>;
  readonly appendLeased: (entries: readonly LeaseEntry[], signal: AbortSignal) => Promise<void>;
  /** Turns a message whose record is damaged into a dead letter. Must not throw. */
  readonly onDamaged: (seq: number) => void;
  /** The disk could not read a message. */
  readonly onUnreadable: (seq: number) => void;
  /** Writes the end of leases without waiting for it. Must not throw. */
  readonly writeLater: (entries: readonly LeaseEntry[]) => void;
  readonly onLeased: (due_ms: number) => void;
  readonly onVisible: (topic: string) => void;
}

export class Deliveries {
  readonly #init: DeliveriesInit;
  readonly #nonces = new Nonces();

  constructor(init: DeliveriesInit) {
    this.#init = init;
  }

  /** Leases visible messages from the front; undefined if there are none. Synchronous. */
  take(name: string, wanted: Wanted): Taken | undefined {
    const topic = this.#init.topics.find(name);
    if (topic === undefined || topic.state.visible === 0) return undefined;
    const { state } = this.#init;
    const now_ms = sched.now_ms();
    const until_ms = sched.wall_ms() + wanted.visibility_ms;
    const leases: LeaseEntry[] = [];
    let bytes = 0;
    for (const slot of state.peek(topic.state, wanted.max)) {
      bytes += state.payloadBytes(slot);
      if (leases.length > 0 && bytes > wanted.bytes_max) break;
      leases.push(this.#lease(topic, slot, wanted.visibility_ms, now_ms, until_ms));
    }
    if (leases.length === 0) return undefined;
    this.#init.onLeased(now_ms + wanted.visibility_ms);
    return { topic, leases };
  }

  /** Reads the messages and writes their leases; nothing stays leased if that fails. */
  async deliver(taken: Taken, signal: AbortSignal): Promise<Delivery> {
    const { leases, topic } = taken;
    try {
      signal.throwIfAborted();
      const [read] = await Promise.all([this.#readAll(leases, signal), this.#init.appendLeased(leases, signal)]);
      // [mailbox I-12] The receiver left while the lease was written.
      signal.throwIfAborted();
      const messages = leases.flatMap((lease, index) => this.#received(topic, lease, read[index]!) ?? []);
      return { messages, release: () => this.#release(taken) };
    } catch (error) {
      this.#release(taken);
      throw error;
    }
  }

  /** From the page cache in this step, the others from the disk. */
  async #readAll(leases: readonly LeaseEntry[], signal: AbortSignal): Promise<ReadMessage[]> {
    const reads = leases.map(({ seq }) => this.#init.reads.read(seq, signal));
    return await Promise.all(reads.map((read) => Promise.resolve(read)));
  }

  #lease(topic: Topic, slot: Slot, visibility_ms: number, now_ms: number, until_ms: number): LeaseEntry {
    const { state } = this.#init;
    const view = state.view(slot);
    const delivery = view.delivery + 1;
    const attempts = view.attempts + 1;
    const nonce = this.#nonces.next();
    // [mailbox I-3] From this step on no other receiver gets it.
    state.lease(slot, { delivery, attempts, nonce, due_ms: now_ms + visibility_ms });
    if (delivery > 1) topic.counts.redelivered += 1;
    return { seq: view.seq, delivery, attempts, nonce, until_ms, visibility_ms };
  }

  #received(topic: Topic, lease: LeaseEntry, read: ReadMessage): ReceivedMessage | undefined {
    const { seq, delivery, attempts } = lease;
    if (read === 'damaged') this.#init.onDamaged(seq);
    if (read === 'unreadable') this.#init.onUnreadable(seq);
    if (typeof read === 'string') return undefined;
    return { ...messageDto(read, { seq, delivery, attempts }), token: encodeToken(lease, topic.tag) };
  }

  /** [mailbox I-12] Ends leases that are still in force, at once. Only a nack or the end of a lease is an attempt. */
  #release({ topic, leases }: Taken): void {
    const ended_ms = sched.wall_ms();
    const ended: LeaseEntry[] = [];
    for (const lease of leases) {
      const slot = this.#current(lease);
      if (slot === NONE) continue;
      const { seq, delivery, nonce } = lease;
      const attempts = lease.attempts - 1;
      this.#init.state.release(slot, undefined, attempts);
      // A length of 0: a start makes the message ready as well.
      ended.push({ seq, delivery, attempts, nonce, until_ms: ended_ms, visibility_ms: 0 });
    }
    if (ended.length === 0) return;
    this.#init.writeLater(ended);
    this.#init.onVisible(topic.name);
  }

  /** The slot of a lease that is still in force. */
  #current({ seq, delivery, nonce }: LeaseEntry): Slot {
    const { state } = this.#init;
    const slot = state.find(seq);
    if (slot === NONE || state.stateOf(slot) !== STATE.leased || state.isSettling(slot)) return NONE;
    const view = state.view(slot);
    return view.delivery === delivery && view.nonce === nonce ? slot : NONE;
  }
}
