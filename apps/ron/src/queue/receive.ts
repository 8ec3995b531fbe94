/**
 * `ron queue receive`: leases messages and prints them; with `--ack`, acknowledges each one after it is printed.
 *
 * Contract: a message is acknowledged only once it is written. Messages that were received but not written, because of
 * Ctrl-C, a closed pipe or a failed write, are returned at once. With `--follow`, failures of the service are retried with a
 * growing delay until the signal aborts. Bound: one answer in memory. Cancellation: by the signal.
 */
import type { MailboxClient } from '@ron/client';
import { Deadline, isRonError, sched, sleep } from '@ron/kernel/core';
import { MAILBOX_LIMITS, type ReceivedMessage, type ReceiveRequest } from '@ron/proto';
import { usage } from '../args.ts';
import { CliError, messageOf } from '../exits.ts';
import { durationArg, numberArg } from '../quantity-args.ts';
import { counted, topicArg, withMailbox } from './mailbox-service.ts';
import { messageOutput, type MessageOutput } from './message-output.ts';
import type { QueueInvocation } from './queue-options.ts';

const MAX_MESSAGES = 1_000_000_000;
const WAIT_MS_MAX = 24 * 3600 * 1000;
/** For an ack, and for the return of unwritten messages. */
const SETTLE_MS = 5000;
const RETRY_MS_MIN = 200;
const RETRY_MS_MAX = 5000;
/** With --follow: less than an answer has room for, so that a slow reader keeps few leases. */
const FOLLOW_BATCH = 16;

export async function receive(invocation: QueueInvocation, [name]: readonly string[]): Promise<void> {
  const topic = topicArg(name!);
  const plan = planOf(invocation);
  const output = await messageOutput(invocation);
  await withMailbox(invocation, async (client) => {
    const receiver = new Receiver(invocation, client, topic, plan, output);
    await (plan.follow ? receiver.follow() : receiver.run());
  });
}

interface Plan {
  readonly max: number;
  readonly wait_ms: number;
  readonly visibility_ms: number | undefined;
  readonly ack: boolean;
  readonly follow: boolean;
}

function planOf({ values }: QueueInvocation): Plan {
  const { max, wait, visibility, ack = false, follow = false } = values;
  const { visibility_ms_min, visibility_ms_max } = MAILBOX_LIMITS;
  if (follow && wait !== undefined) throw usage({ name: 'queue' }, '--follow waits until Ctrl-C: omit --wait');
  return {
    max: max === undefined ? (follow ? MAX_MESSAGES : 1) : numberArg('--max', max, 1, MAX_MESSAGES),
    wait_ms: wait === undefined ? 0 : durationArg('--wait', wait, 0, WAIT_MS_MAX),
    visibility_ms:
      visibility === undefined
        ? undefined
        : durationArg('--visibility', visibility, visibility_ms_min, visibility_ms_max),
    ack,
    follow,
  };
}

class Receiver {
  readonly #invocation: QueueInvocation;
  readonly #client: MailboxClient;
  readonly #topic: string;
  readonly #plan: Plan;
  readonly #output: MessageOutput;
  #received = 0;
  #stale = 0;

  constructor(invocation: QueueInvocation, client: MailboxClient, topic: string, plan: Plan, output: MessageOutput) {
    this.#invocation = invocation;
    this.#client = client;
    this.#topic = topic;
    this.#plan = plan;
    this.#output = output;
  }

  /** Until there are enough messages, or none comes within `wait_ms`. */
  async run(): Promise<void> {
    const { max, wait_ms } = this.#plan;
    let until_ms = sched.now_ms() + wait_ms;
    while (this.#received < max) {
      const left_ms = Math.max(0, until_ms - sched.now_ms());
      const messages = await this.#receive(Math.min(left_ms, MAILBOX_LIMITS.wait_ms), MAILBOX_LIMITS.batch_messages);
      if (messages.length === 0 && sched.now_ms() >= until_ms) break;
      await this.#deliver(messages);
      // Further messages are taken only if they are there.
      if (messages.length > 0) until_ms = sched.now_ms();
    }
    if (this.#received === 0) this.#invocation.io.note(`no message is visible in ${this.#topic}`);
    this.#reportStale();
  }

  async follow(): Promise<void> {
    const { signal, io } = this.#invocation;
    let delay_ms = RETRY_MS_MIN;
    while (this.#received < this.#plan.max) {
      try {
        const messages = await this.#receive(MAILBOX_LIMITS.wait_ms, FOLLOW_BATCH);
        await this.#deliver(messages);
        delay_ms = RETRY_MS_MIN;
      } catch (error) {
        if (signal.aborted || !isRonError(error) || !error.retryable) throw error;
        if (delay_ms === RETRY_MS_MIN) io.note(`${messageOf(error)}; retrying`);
        await sleep(delay_ms, signal, 'queue.follow');
        delay_ms = Math.min(delay_ms * 2, RETRY_MS_MAX);
      }
    }
    this.#reportStale();
  }

  async #receive(wait_ms: number, batch: number): Promise<readonly ReceivedMessage[]> {
    const { visibility_ms } = this.#plan;
    const max = Math.min(this.#plan.max - this.#received, batch);
    const request: ReceiveRequest = {
      max,
      wait_ms: Math.ceil(wait_ms),
      bytes_max: MAILBOX_LIMITS.receive_bytes_default,
      ...(visibility_ms !== undefined && { visibility_ms }),
    };
    return await this.#client.receive(this.#topic, request, { signal: this.#invocation.signal });
  }

  /** Writes and acknowledges messages; returns the rest of them if that fails. */
  async #deliver(messages: readonly ReceivedMessage[]): Promise<void> {
    const { signal } = this.#invocation;
    const written: ReceivedMessage[] = [];
    try {
      for (const message of messages) {
        signal.throwIfAborted();
        await this.#output.write(message);
        written.push(message);
      }
    } catch (error) {
      await Promise.all([this.#giveBack(messages.slice(written.length)), this.#ack(written)]);
      throw error;
    }
    this.#received += messages.length;
    await this.#ack(written);
  }

  /** Ctrl-C does not abort it: the messages are written. */
  async #ack(messages: readonly ReceivedMessage[]): Promise<void> {
    if (!this.#plan.ack || messages.length === 0) return;
    using deadline = Deadline.after('queue.ack', SETTLE_MS);
    const tokens = messages.map(({ token }) => token);
    const results = await deadline.run((signal) => this.#client.ack(this.#topic, tokens, { signal }));
    this.#stale += results.filter((result) => result !== 'ok').length;
  }

  /** Makes messages visible again at once. If that fails, their visibility ends as usual. */
  async #giveBack(messages: readonly ReceivedMessage[]): Promise<void> {
    if (messages.length === 0) return;
    using deadline = Deadline.after('queue.return', SETTLE_MS);
    const tokens = messages.map(({ token }) => token);
    await deadline
      .run((signal) => this.#client.nack(this.#topic, tokens, { delay_ms: 0 }, { signal }))
      .catch(() => undefined);
  }

  #reportStale(): void {
    if (this.#stale === 0) return;
    const advice = 'use a longer --visibility';
    throw new CliError(
      'failed',
      `the lease of ${counted(this.#stale, 'message')} had ended before the acknowledgement, so they may be delivered again: ${advice}`,
      'stale',
    );
  }
}
