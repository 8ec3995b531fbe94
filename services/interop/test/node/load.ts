/**
 * Providers that send signed deliveries, each with a unique body, and repeat a delivery until it is accepted, as providers do.
 *
 * A stream sends one delivery at a time: its next one only after the one before it was accepted. So the messages of a stream have
 * an order that mailbox must show. The load outlives the process of interop: meanwhile its streams retry.
 * Bound: `streams` requests at a time for each provider, `rate_per_s` for all.
 *
 *     const load = new Load(t, { url: () => node.url, schemes: ['github', 'stripe'], streams: 4 });
 *     load.start();
 *     ...
 *     await load.stop();
 */
import assert from 'node:assert/strict';
import { Agent } from '@ron/kernel/http';
import { eventually, type After } from '@ron/testkit';
import { addressOf, send, type Reply } from '@ron/testkit/service';
import { signed, type LoadScheme, type SignedDelivery } from './senders.ts';

export interface LoadInit {
  /** Of interop, as it runs now. */
  readonly url: () => string;
  readonly schemes: readonly LoadScheme[];
  /** For each provider. Default 4. */
  readonly streams?: number;
  /** For all streams together. Default: no limit. */
  readonly rate_per_s?: number;
  /** Bytes of a body. Default: about 100. */
  readonly bytes?: number;
}

/** A delivery that got 202. */
export interface AcceptedRecord {
  readonly topic: string;
  /** Provider and number of the stream. */
  readonly stream: string;
  /** The number in the stream. */
  readonly at: number;
  readonly receipt: string;
  readonly b3: string;
  readonly duplicate: boolean;
  readonly place: 'mailbox' | 'spool';
  /** Requests without an answer, or with a refusal, before the 202. */
  readonly failures: number;
}

const RETRY_MS = 20;
/** A request that gets no answer is a defect: its deadline is 7 s. */
const ANSWER_MS_MAX = 20_000;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

export class Load {
  readonly accepted: AcceptedRecord[] = [];
  /** Refusals by status and reason, such as `503 DOWNSTREAM_UNAVAILABLE`, and `none` for requests without an answer. */
  readonly refusals = new Map<string, number>();
  /** The longest time from a request to its answer. */
  slowest_ms = 0;
  readonly #init: LoadInit;
  readonly #name = Math.random().toString(36).slice(2, 8);
  readonly #agent = new Agent({ keepAlive: true });
  readonly #running: Promise<void>[] = [];
  #failure: { readonly error: unknown } | undefined;
  #isStopped = false;
  #isGivingUp = false;

  /** It ends with the test. */
  constructor(t: After, init: LoadInit) {
    this.#init = init;
    t.after(() => this.giveUp());
  }

  start(): void {
    const { schemes, streams = 4, rate_per_s } = this.#init;
    const gap_ms = rate_per_s === undefined ? 0 : (1000 * schemes.length * streams) / rate_per_s;
    for (const scheme of schemes)
      for (let n = 0; n < streams; n += 1) {
        const stream = this.#stream(scheme, n, gap_ms);
        this.#running.push(stream.catch((error: unknown) => void (this.#failure ??= { error })));
      }
  }

  /** Resolves once every delivery that was begun is accepted. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await Promise.all(this.#running.splice(0));
    this.#requireSound();
    this.#agent.destroy();
  }

  /** Like `stop`, but deliveries that are not accepted by now are given up. */
  async giveUp(): Promise<void> {
    this.#isGivingUp = true;
    await this.stop();
  }

  /** Waits until so many more deliveries are accepted. */
  async moves(count: number): Promise<void> {
    const goal = this.accepted.length + count;
    await eventually(`${count} more deliveries are accepted`, () => {
      this.#requireSound();
      return this.accepted.length >= goal;
    });
  }

  #requireSound(): void {
    if (this.#failure !== undefined) throw this.#failure.error;
  }

  async #stream(scheme: LoadScheme, n: number, gap_ms: number): Promise<void> {
    const begun_ms = performance.now() + Math.random() * gap_ms;
    for (let at = 0; !this.#isStopped; at += 1) {
      await pause(Math.max(0, begun_ms + at * gap_ms - performance.now()));
      const stream = `${scheme}-${n}`;
      const delivery = signed(scheme, `${this.#name}_${stream}_${at}`, { bytes: this.#init.bytes ?? 0 });
      await this.#deliver(delivery, stream, at);
    }
  }

  async #deliver(delivery: SignedDelivery, stream: string, at: number): Promise<void> {
    for (let failures = 0; ; failures += 1) {
      const reply = await this.#post(delivery);
      if (reply?.status === 202) {
        const { receipt, duplicate, b3, place } = reply.json;
        assert.equal(reply.headers['x-ron-receipt'], receipt);
        assert.equal(b3, addressOf(delivery.body));
        const topic = `hooks.${delivery.provider}`;
        this.accepted.push({ topic, stream, at, failures, receipt, b3, duplicate, place });
        return;
      }
      this.#refused(reply);
      if (this.#isGivingUp) return;
      await pause(RETRY_MS);
    }
  }

  /** Undefined without an answer: the connection broke or was refused. */
  async #post({ provider, headers, body }: SignedDelivery): Promise<Reply | undefined> {
    const begun_ms = performance.now();
    const signal = AbortSignal.timeout(ANSWER_MS_MAX);
    try {
      return await send(this.#init.url(), 'POST', `/webhooks/${provider}`, {
        headers,
        body,
        agent: this.#agent,
        signal,
      });
    } catch {
      assert.ok(!signal.aborted, 'a delivery is answered');
      return undefined;
    } finally {
      this.slowest_ms = Math.max(this.slowest_ms, performance.now() - begun_ms);
    }
  }

  #refused(reply: Reply | undefined): void {
    const what = reply === undefined ? 'none' : `${reply.status} ${reply.json?.reason ?? reply.json?.code}`;
    this.refusals.set(what, (this.refusals.get(what) ?? 0) + 1);
  }
}
