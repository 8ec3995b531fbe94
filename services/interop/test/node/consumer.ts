/**
 * A consumer of the topics of a node: receives and acks in batches until it is stopped, and outlives the process of mailbox.
 *
 * It fails if a message comes again after mailbox answered that it is acked.
 */
import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import type { MailboxClient } from '@ron/client';
import type { ReceivedMessage } from '@ron/proto';
import { eventually, type After } from '@ron/testkit';

/** A message at its first arrival. */
export interface Arrival {
  readonly id: string;
  readonly seq: number;
  readonly topic: string;
  readonly b3: string;
  readonly headers: Readonly<Record<string, string>>;
}

const BATCH = 128;
const VISIBILITY_MS = 2000;
const PAUSE_MS = 20;

export class Consumer {
  /** By id. */
  readonly arrived = new Map<string, Arrival>();
  readonly #acked = new Set<string>();
  readonly #mailbox: MailboxClient;
  readonly #topics: readonly string[];
  readonly #running: Promise<void>[] = [];
  #isStopped = false;

  /** It ends with the test. */
  constructor(t: After, mailbox: MailboxClient, topics: readonly string[]) {
    t.after(() => this.stop());
    this.#mailbox = mailbox;
    this.#topics = topics;
  }

  get acked(): number {
    return this.#acked.size;
  }

  start(): void {
    for (const topic of this.#topics) this.#running.push(this.#consume(topic));
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await Promise.all(this.#running.splice(0));
  }

  /** Receives and acks until a topic has no message that waits, is delayed or leased. Mailbox must run. */
  async drain(): Promise<void> {
    const mailbox = this.#mailbox;
    for (const topic of this.#topics) {
      while (!(await isEmpty(mailbox, topic))) if ((await this.#step(topic)) === 0) await pause(PAUSE_MS);
    }
  }

  /** Drains until so many messages have arrived. */
  async drainUntil(count: number): Promise<void> {
    await eventually(`${count} messages arrive`, async () => {
      await this.drain();
      return this.arrived.size >= count;
    });
    assert.equal(this.arrived.size, count);
  }

  async #consume(topic: string): Promise<void> {
    while (!this.#isStopped) {
      // Mailbox may be away.
      const count = await this.#step(topic).catch((error: unknown) => {
        if (error instanceof assert.AssertionError) throw error;
        return 0;
      });
      if (count === 0) await pause(PAUSE_MS);
    }
  }

  async #step(topic: string): Promise<number> {
    const messages = await this.#mailbox.receive(topic, { max: BATCH, visibility_ms: VISIBILITY_MS });
    for (const message of messages) this.#arrives(topic, message);
    if (messages.length === 0) return 0;
    const results = await this.#mailbox.ack(
      topic,
      messages.map(({ token }) => token),
    );
    for (const [at, { id }] of messages.entries()) if (results[at] === 'ok') this.#acked.add(id);
    return messages.length;
  }

  #arrives(topic: string, { id, seq, b3, headers }: ReceivedMessage): void {
    assert.ok(!this.#acked.has(id), `the message ${id} of ${topic} comes again after it was acked`);
    if (!this.arrived.has(id)) this.arrived.set(id, { id, seq, topic, b3, headers });
  }
}

async function isEmpty(mailbox: MailboxClient, topic: string): Promise<boolean> {
  const known = (await mailbox.topics()).find(({ topic: name }) => name === topic);
  if (known === undefined) return true;
  // After a lease that ended on a busy machine, a message waits until it is delivered again.
  const { ready, leased, delayed } = known.ledger;
  return ready + leased + delayed === 0;
}
