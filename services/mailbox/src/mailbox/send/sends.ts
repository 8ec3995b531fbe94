/**
 * Sends: idempotency keys, limits of topics, one append for all messages of a call.
 *
 * Contract: a call resolves after the sync of its messages, with a result for each, in order. A message whose key is
 * remembered gets the first id; one whose key is in flight waits for that sync, and is stored itself if it failed. A message
 * that is refused does not stop the others, except in an ordered call: there those of its topic behind it are refused too, and
 * those behind one that waits are tried after it. When the append fails the call rejects, and none of its messages is visible.
 * Bound: messages in flight count against the limits of their topic; the caller bounds the calls.
 * Cancellation: a call whose signal aborts before its messages are written has stored nothing; after that they may be stored.
 */
import { blake3 } from '@napi-rs/blake-hash';
import { orAborted, sched, touch } from '@ron/kernel';
import {
  formatAddress,
  formatUlid,
  ulidBytes,
  type OutgoingMessage,
  type SendOptions,
  type SendResult,
} from '@ron/proto';
import { idempotencyHash, isSameBody, type SeenKey, type SeenKeys } from '../../queue/seen-keys.ts';
import type { MessageInput } from '../../store/records.ts';
import { NewIds } from '../new-id.ts';
import type { AgeClock } from '../age-clock.ts';
import { CallOrder } from './call-order.ts';
import { PendingSend } from './pending-send.ts';
import { TOO_MANY_TOPICS, type Topic, type Topics } from '../topics/topics.ts';

/** A full topic is logged at most this often: its senders repeat their sends. */
const FULL_EVERY_MS = 60_000;
const NO_HEADERS: Readonly<Record<string, string>> = {};

export interface SendsInit {
  readonly ages: AgeClock;
  readonly topics: Topics;
  readonly seen: SeenKeys;
  /** Resolves when the messages are durable. */
  readonly append: (messages: readonly MessageInput[], signal: AbortSignal) => Promise<unknown>;
  readonly mayCreateTopics: () => boolean;
  readonly onFull: (topic: Topic, problem: string) => void;
}

/** A message of a call, until it has a result. */
interface Unsent {
  readonly index: number;
  readonly message: OutgoingMessage;
  readonly b3: Buffer;
  readonly key_hash: Uint8Array | undefined;
}

/** A message that has room and waits for its sync. */
interface Admitted {
  readonly send: PendingSend;
  readonly index: number;
}

/** The messages of a call that are admitted in one step, and those that wait for another send. */
interface Round {
  readonly pending: Admitted[];
  readonly blocked: Unsent[];
  /** Of an ordered call. */
  readonly order: CallOrder | undefined;
}

/** Times of one admission. */
interface Now {
  readonly now_ms: number;
  /** The time of the messages. */
  readonly wall_ms: number;
}

export class Sends {
  readonly #init: SendsInit;
  readonly #ids = new NewIds();
  /** By topic and idempotency key: those of messages in flight. */
  readonly #inFlight = new Map<string, PendingSend>();

  constructor(init: SendsInit) {
    this.#init = init;
  }

  async send(messages: readonly OutgoingMessage[], signal: AbortSignal, how: SendOptions = {}): Promise<SendResult[]> {
    const order = how.ordered === true ? new CallOrder() : undefined;
    const results: SendResult[] = Array.from({ length: messages.length });
    let unsent = messages.map(unsentOf);
    while (unsent.length > 0) {
      const pending: Admitted[] = [];
      const blocked: Unsent[] = [];
      const blockers = this.#admitAll(unsent, results, { pending, blocked, order });
      if (pending.length > 0) await this.#store(pending, signal);
      for (const { send, index } of pending) results[index] = stored(send);
      // [mailbox I-2] The first send of a key decides; after its sync this one is a duplicate, or is stored itself.
      for (const blocker of blockers) await orAborted(blocker, signal);
      unsent = blocked;
    }
    return results;
  }

  /** One synchronous step: no other send comes between the check of a key or a limit and its reservation. */
  #admitAll(unsent: readonly Unsent[], results: SendResult[], { pending, blocked, order }: Round): Promise<void>[] {
    touch(this);
    order?.begin();
    const { ages } = this.#init;
    const now = { now_ms: sched.now_ms(), wall_ms: ages.stamp_ms() };
    const blockers: Promise<void>[] = [];
    for (const each of unsent) {
      const { topic } = each.message;
      if (order?.waits(topic) === true) {
        blocked.push(each);
        continue;
      }
      const admitted = this.#admit(each, now, results, order);
      if (admitted === undefined) order?.answered(topic, results[each.index]!);
      else if (admitted.isFirst) pending.push({ send: admitted.send, index: each.index });
      else {
        order?.wait(topic);
        blocked.push(each);
        blockers.push(admitted.send.ended());
      }
    }
    return blockers;
  }

  /** The reserved send, the one that has the key in flight, or undefined if there is a result. */
  #admit(
    each: Unsent,
    now: Now,
    results: SendResult[],
    order: CallOrder | undefined,
  ): { send: PendingSend; isFirst: boolean } | undefined {
    const { message, key_hash, b3, index } = each;
    const mayCreate = this.#init.mayCreateTopics();
    const topic = this.#init.topics.forSend(message.topic, mayCreate);
    if (topic === undefined) {
      const refusal: SendResult = mayCreate
        ? { error: 'full', detail: TOO_MANY_TOPICS }
        : { error: 'topic', detail: 'the topic does not exist, and a send may not create it' };
      this.#init.topics.counts.others.countSent(refusal.error);
      results[index] = refusal;
      return undefined;
    }
    const behind = order?.refusalOf(message.topic);
    if (behind !== undefined) {
      topic.counts.countSent(behind.error);
      results[index] = behind;
      this.#init.topics.forgetUnused(topic);
      return undefined;
    }
    if (key_hash !== undefined) {
      const seen = this.#init.seen.find(topic.state, key_hash, now.now_ms);
      if (seen !== undefined) {
        results[index] = repeated(topic, seen, b3);
        return undefined;
      }
      const first = this.#inFlight.get(inFlightKey(message.topic, key_hash));
      if (first !== undefined) return { send: first, isFirst: false };
    }
    const send = this.#reserve(topic, each, now);
    if (send !== undefined) return { send, isFirst: true };
    topic.counts.countSent('full');
    results[index] = this.#isTooLarge(topic, message)
      ? { error: 'full', detail: 'the message is larger than max_bytes of its topic', retryable: false }
      : { error: 'full', detail: 'the topic has no room for the message' };
    this.#init.topics.forgetUnused(topic);
    return undefined;
  }

  #reserve(topic: Topic, { message, b3, key_hash }: Unsent, now: Now): PendingSend | undefined {
    const { payload, delay_ms = 0 } = message;
    // [mailbox I-11]
    if (!topic.state.reserve(payload.length, this.#init.topics.policyOf(topic))) {
      if (!this.#isTooLarge(topic, message)) this.#onFull(topic, payload.length, now.now_ms);
      return undefined;
    }
    const send = new PendingSend({
      topic,
      id: message.id === undefined ? this.#ids.next(now.wall_ms) : ulidBytes(message.id),
      meta: {
        topic: message.topic,
        key: message.key,
        idempotency_key: message.idempotency_key,
        sent_ms: now.wall_ms,
        not_before_ms: delay_ms > 0 ? now.wall_ms + delay_ms : 0,
        headers: message.headers ?? NO_HEADERS,
        replay_of: undefined,
        b3,
      },
      payload,
      key_hash,
      due_ms: delay_ms > 0 ? now.now_ms + delay_ms : undefined,
    });
    if (key_hash !== undefined) this.#inFlight.set(inFlightKey(message.topic, key_hash), send);
    return send;
  }

  /** No ack makes room for it. */
  #isTooLarge(topic: Topic, { payload }: OutgoingMessage): boolean {
    return payload.length > this.#init.topics.policyOf(topic).max_bytes;
  }

  #onFull(topic: Topic, refused_bytes: number, now_ms: number): void {
    topic.refused_bytes = refused_bytes;
    if (now_ms - topic.full_reported_ms < FULL_EVERY_MS) return;
    topic.full_reported_ms = now_ms;
    this.#init.onFull(topic, 'a send found no room');
  }

  async #store(admitted: readonly Admitted[], signal: AbortSignal): Promise<void> {
    const pending = admitted.map(({ send }) => send);
    try {
      // [mailbox I-1] The messages become visible in the step of the sync, and the call is answered after it.
      await this.#init.append(pending, signal);
    } catch (error) {
      // A rotation may have made the group durable before a later part of its batch failed.
      if (pending.some(({ seq }) => seq === undefined)) throw error;
    } finally {
      touch(this);
      for (const send of pending) this.#end(send);
    }
  }

  #end(send: PendingSend): void {
    const { topic, meta, payload, key_hash, seq } = send;
    if (key_hash !== undefined) this.#inFlight.delete(inFlightKey(meta.topic, key_hash));
    if (seq === undefined) {
      topic.state.unreserve(payload.length);
      topic.counts.countSent('failed');
      this.#init.topics.forgetUnused(topic);
    }
    send.end();
  }
}

function unsentOf(message: OutgoingMessage, index: number): Unsent {
  const { topic, idempotency_key, payload } = message;
  const key_hash = idempotency_key === undefined ? undefined : idempotencyHash(topic, idempotency_key);
  return { index, message, b3: blake3(payload), key_hash };
}

const inFlightKey = (topic: string, hash: Uint8Array): string =>
  `${topic} ${Buffer.from(hash.buffer, hash.byteOffset, hash.byteLength).toString('latin1')}`;

function stored({ id, seq, meta }: PendingSend): SendResult {
  return { id: formatUlid(id), seq: seq!, duplicate: false, b3: formatAddress(meta.b3) };
}

/** [mailbox I-2] The result of a send whose key is remembered. */
function repeated({ counts }: Topic, seen: SeenKey, b3: Uint8Array): SendResult {
  const id = formatUlid(seen.id);
  if (!isSameBody(seen, b3)) {
    counts.countSent('conflict');
    return { error: 'conflict', id, detail: 'the idempotency key belongs to a message with another body' };
  }
  counts.countSent('duplicate');
  return { id, seq: seen.seq, duplicate: true, b3: formatAddress(b3) };
}
