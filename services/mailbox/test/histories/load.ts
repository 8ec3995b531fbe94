/**
 * Producers and consumers that use a mailbox in every way, until they are stopped. They outlive the process of the mailbox:
 * while none runs they wait, and unanswered sends with an idempotency key and unanswered acks are sent again to the next one.
 */
import type { OutgoingMessage, ReceivedMessage } from '@ron/proto';
import { bytesOf, KIB } from '@ron/testkit';
import type { Recorder } from './history.ts';
import { RecordingClient } from './recording-client.ts';
import { httpWire, type Form, type Target } from './wires.ts';

export const TOPICS = ['plain', 'keyed', 'hooks.web'] as const;
type Topic = (typeof TOPICS)[number];

/** Mostly small ones, some that fill a segment soon. */
const SIZES = [20, 100, 1000, 1000, 4000, 64 * KIB, 300 * KIB];
const KEYS = 5;
const VISIBILITY_MS = 1000;
const PAUSE_MS = 5;

const pause = (ms = PAUSE_MS): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** A payload that no other message has. */
function payloadOf(name: string, random: () => number): Buffer {
  return Buffer.concat([Buffer.from(`${name}:`), bytesOf(pick(SIZES, random), 1)]);
}

const pick = <T>(list: readonly T[], random: () => number): T => list[Math.floor(random() * list.length)]!;

/** The process that runs now. */
export interface LiveTarget extends Target {
  isUp: boolean;
}

export class Load {
  readonly #recorder: Recorder;
  readonly #target: LiveTarget;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>[] = [];
  readonly #random: () => number;
  /** Answered sends and acks. */
  sent = 0;
  acked = 0;

  constructor(recorder: Recorder, target: LiveTarget, random: () => number = Math.random) {
    this.#recorder = recorder;
    this.#target = target;
    this.#random = random;
  }

  start(): void {
    const producers = [
      this.#produce('p-single', 'single', 'plain', 1),
      this.#produce('p-json', 'json', 'plain', 8),
      this.#produce('p-keyed', 'framed', 'keyed', 16),
      this.#produce('p-delayed', 'json', 'keyed', 4, { isDelayed: true }),
      this.#produceOnce('p-once', 'single'),
      this.#produceOnce('p-once-framed', 'framed'),
    ];
    const consumers = TOPICS.flatMap((topic) => [this.#consume(topic, 'framed', 16), this.#consume(topic, 'json', 3)]);
    this.#running.push(...producers, ...consumers);
  }

  /** Ends all clients; resolves when their last calls have been answered or have failed. */
  async stop(): Promise<void> {
    this.#stop.abort();
    // Late acks are added while consumers end.
    while (this.#running.length > 0) await this.#running.pop();
  }

  /** Waits while no process runs; false when the load is stopped. */
  async #up(): Promise<boolean> {
    while (!this.#target.isUp && !this.#isStopped) await pause();
    return !this.#isStopped;
  }

  get #isStopped(): boolean {
    return this.#stop.signal.aborted;
  }

  #client(form: Form): RecordingClient {
    return new RecordingClient(this.#recorder, httpWire(this.#target, form));
  }

  async #produce(who: string, form: Form, topic: Topic, batch: number, { isDelayed = false } = {}): Promise<void> {
    const client = this.#client(form);
    for (let turn = 0; await this.#up(); turn += 1) {
      const messages = Array.from({ length: batch }, (_, at) => ({
        topic,
        payload: payloadOf(`${who} ${turn}.${at}`, this.#random),
        ...(topic === 'keyed' && { key: `k${Math.floor(this.#random() * KEYS)}` }),
        ...(isDelayed && { delay_ms: Math.floor(this.#random() * 300) }),
      }));
      this.sent += await countOf(client.send(messages));
      await pause();
    }
  }

  /**
   * Each message has an idempotency key, and is sent again until it is answered. The last one of a process is sent once more
   * to the next process.
   */
  async #produceOnce(who: string, form: Form): Promise<void> {
    const client = this.#client(form);
    let last: { readonly url: string; readonly message: OutgoingMessage } | undefined;
    for (let turn = 0; await this.#up(); turn += 1) {
      if (last !== undefined && last.url !== this.#target.url) await countOf(client.send([last.message]));
      const idempotency_key = `${who} ${turn}`;
      const payload = payloadOf(idempotency_key, this.#random);
      const message = { topic: 'hooks.web', idempotency_key, payload };
      const both = await Promise.all([countOf(client.send([message])), countOf(client.send([message]))]);
      let answers = both[0] + both[1];
      while (answers === 0 && (await this.#up())) {
        answers += await countOf(client.send([message]));
        await pause();
      }
      const other = { ...message, payload: Buffer.from(`${idempotency_key}: another body`) };
      if (turn % 8 === 0) await countOf(client.send([other]));
      if (answers > 0) last = { url: this.#target.url, message };
      this.sent += answers;
      await pause();
    }
  }

  async #consume(topic: Topic, form: Form, max: number): Promise<void> {
    const client = this.#client(form);
    while (await this.#up()) {
      try {
        const messages = await client.receive(topic, { max, visibility_ms: VISIBILITY_MS, wait_ms: 200 });
        await this.#settle(client, topic, messages);
      } catch {
        await pause();
      }
    }
  }

  /** Acks most of them; the others are returned, extended, forgotten, acked late or given up. */
  async #settle(client: RecordingClient, topic: Topic, messages: readonly ReceivedMessage[]): Promise<void> {
    const groups = Object.groupBy(messages, () => pick(WAYS, this.#random));
    const { ack = [], nack = [], extend = [], dead = [], held = [], late = [], twice = [] } = groups;
    if (held.length > 0) this.#running.push(this.#ackAfter(VISIBILITY_MS / 2, client, topic, held));
    if (late.length > 0) this.#running.push(this.#ackAfter(VISIBILITY_MS * 1.2, client, topic, late));
    if (ack.length > 0) this.acked += (await client.ack(topic, ack)).length;
    if (nack.length > 0) await client.nack(topic, nack, { delay_ms: Math.floor(this.#random() * 200) });
    if (extend.length > 0) {
      await client.extend(topic, extend, 2 * VISIBILITY_MS);
      this.#running.push(this.#ackAfter(VISIBILITY_MS, client, topic, extend));
    }
    if (twice.length > 0) await Promise.allSettled([client.ack(topic, twice), client.ack(topic, twice)]);
    if (dead.length > 0) await client.nack(topic, dead, { dead: true, error: 'given up' });
  }

  /** Acks later, perhaps at the next process, until it is answered. */
  async #ackAfter(
    ms: number,
    client: RecordingClient,
    topic: Topic,
    messages: readonly ReceivedMessage[],
  ): Promise<void> {
    await pause(ms);
    while (await this.#up()) {
      try {
        this.acked += (await client.ack(topic, messages)).length;
        return;
      } catch {
        await pause();
      }
    }
  }
}

type Way = 'ack' | 'nack' | 'extend' | 'dead' | 'held' | 'late' | 'forget' | 'twice';
const WAYS: readonly Way[] = [
  ...Array.from({ length: 30 }, () => 'ack' as const),
  ...Array.from({ length: 4 }, () => 'nack' as const),
  ...Array.from({ length: 4 }, () => 'extend' as const),
  ...Array.from({ length: 4 }, () => 'held' as const),
  ...Array.from({ length: 4 }, () => 'twice' as const),
  'dead',
  'late',
  'forget',
];

/** How many messages the answer stored; 0 if there was none. */
async function countOf(answer: Promise<readonly object[]>): Promise<number> {
  try {
    return (await answer).filter((result) => 'seq' in result).length;
  } catch {
    return 0;
  }
}
