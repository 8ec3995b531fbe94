/** Random calls of all kinds, often several at once, on a mailbox whose power will fail. */
import assert from 'node:assert/strict';
import type { OutgoingMessage, ReceivedMessage } from '@ron/proto';
import { bytesOf } from '@ron/testkit';
import type { CrashRun } from './crash.ts';

export const RANDOM_TOPICS = ['jobs', 'other'];
const WAIT_STEP_MS = 500;
const WAIT_STEPS_MAX = 200;
const SIZES = [0, 10, 300, 300, 700, 2000];

export class RandomHistory {
  readonly #run: CrashRun;
  readonly #random: () => number;
  #payloads = 0;
  readonly #keyed: OutgoingMessage[] = [];
  readonly #held: { readonly topic: string; readonly message: ReceivedMessage }[] = [];

  constructor(run: CrashRun, random: () => number) {
    this.#run = run;
    this.#random = random;
  }

  /** Calls that fail are part of the history. */
  async steps(count: number): Promise<void> {
    for (let step = 0; step < count; step += 1) {
      const calls = Array.from({ length: 1 + this.#below(4) }, () => this.#call());
      await this.#ended(calls);
      // Leases and delays of the steps so far end.
      if (this.#below(4) === 0) await this.#run.time.advance(this.#below(60_000));
    }
  }

  /** Time goes on while calls wait, as they do for a disk that failed. */
  async #ended(calls: readonly Promise<unknown>[]): Promise<void> {
    const { time } = this.#run;
    const left = new Set(calls);
    for (const call of calls) void call.catch(() => undefined).finally(() => left.delete(call));
    await time.settle();
    for (let steps = 0; left.size > 0 && steps < WAIT_STEPS_MAX; steps += 1) await time.advance(WAIT_STEP_MS);
    assert.equal(left.size, 0, `calls wait: ${time.timers.map(({ label }) => label).join(', ')}`);
  }

  #below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }

  #pick<T>(list: readonly T[]): T {
    return list[this.#below(list.length)]!;
  }

  async #call(): Promise<unknown> {
    const topic = this.#pick(RANDOM_TOPICS);
    const { client } = this.#run;
    const kind = this.#below(20);
    if (kind < 7) return await this.#run.send(Array.from({ length: 1 + this.#below(3) }, () => this.#message()));
    if (kind < 11) return await this.#receive(topic);
    if (kind < 15) return await this.#settle((each, messages) => client.ack(each, messages));
    if (kind < 16)
      return await this.#settle((each, messages) => client.extend(each, messages, 1000 + this.#below(60_000)));
    if (kind < 17) {
      const how = this.#below(2) === 0 ? { dead: true, error: 'given up' } : { delay_ms: this.#below(30_000) };
      return await this.#settle((each, messages) => client.nack(each, messages, how));
    }
    if (kind < 18) return await this.#run.compact();
    const dead = await this.#run.dead(topic);
    if (dead.length === 0) return await this.#run.setPolicy(topic, { max_messages: 100 + this.#below(100) });
    return this.#below(2) === 0 ? await this.#run.replayDead(topic, dead) : await this.#run.deleteDead(topic, dead);
  }

  #message(): OutgoingMessage {
    if (this.#keyed.length > 0 && this.#below(6) === 0) return this.#pick(this.#keyed);
    const name = (this.#payloads += 1);
    const payload = Buffer.concat([Buffer.from(`${name}:`), bytesOf(this.#pick(SIZES), name)]);
    const message = {
      topic: this.#pick(RANDOM_TOPICS),
      payload,
      ...(this.#below(3) === 0 && { key: `k${this.#below(2)}` }),
      ...(this.#below(4) === 0 && { idempotency_key: `i${name}` }),
      ...(this.#below(6) === 0 && { delay_ms: this.#below(20_000) }),
    };
    if ('idempotency_key' in message) this.#keyed.push(message);
    return message;
  }

  async #receive(topic: string): Promise<void> {
    const request = { max: 1 + this.#below(4), visibility_ms: 1000 + this.#below(40_000) };
    for (const message of await this.#run.client.receive(topic, request)) this.#held.push({ topic, message });
  }

  /** One or two messages of one topic. */
  async #settle(call: (topic: string, messages: readonly ReceivedMessage[]) => Promise<unknown>): Promise<void> {
    if (this.#held.length === 0) return;
    const { topic, message } = this.#pick(this.#held);
    const other = this.#pick(this.#held);
    const messages = other.topic === topic && other.message !== message ? [message, other.message] : [message];
    await call(topic, messages);
  }
}
