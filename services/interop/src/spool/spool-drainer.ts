/**
 * The task `spool_drainer`: sends spooled deliveries to mailbox, in the order of each provider.
 *
 * Contract: each delivery is sent until mailbox stored it, answers that it has it, or has another body under its key, which is
 * reported. A delivery is sent after the one before it is settled, or behind it in the same call, which is ordered. A provider
 * whose topic is full or refused, or whose record cannot be read, waits; the others go on. A delivery that was in the log at the
 * start gets its receipt before it is sent, if a crash prevented that.
 * Bound: one batch at a time (`BATCH_LIMITS`), even if the task is killed and restarted. While mailbox is away: one batch for
 * each backoff of at most `BACKOFF_MS_MAX`. It is used in a brownout of the sentinel too: these calls are the samples by
 * which it ends. In one of an operator nothing is sent.
 * Cancellation: after `stopping` the batch in flight is finished. When the signal aborts, `run` rejects at once and the batch
 * goes on until the deadline of its call.
 *
 *     take --> read --> receipts --> send --> settle --> maintain
 */
import { jittered, orAborted, sleep, type Deadline, type TaskContext } from '@ron/kernel';
import type { SendResult, WebhookReceipt } from '@ron/proto';
import { messageOf } from '../mailbox/delivery.ts';
import type { FullTopics } from '../mailbox/full-topics.ts';
import { BATCH_LIMITS, type MailboxDrain } from '../mailbox/mailbox.ts';
import type { Receipts } from '../receipts/receipts.ts';
import { ProviderWaits } from './provider-waits.ts';
import type { Spool, SpooledDelivery, Ticket } from './spool.ts';

export type DrainEvent =
  /** Mailbox has another body under the key of a delivery, which is dropped. */
  | {
      readonly kind: 'spool conflict';
      readonly provider: string;
      readonly id: string;
      readonly first: string | undefined;
    }
  | { readonly kind: 'spool unreadable'; readonly provider: string; readonly problem: string }
  /** A delivery waits for its receipt, which a crash prevented. */
  | { readonly kind: 'spool waits for receipts'; readonly provider: string; readonly problem: string }
  | { readonly kind: 'topic refused'; readonly topic: string; readonly problem: string }
  | { readonly kind: 'topic full'; readonly topic: string }
  | { readonly kind: 'topic has room'; readonly topic: string };

export interface SpoolDrainerInit {
  readonly spool: Spool;
  readonly mailbox: MailboxDrain;
  readonly receipts: Pick<Receipts, 'has' | 'append'>;
  readonly full: FullTopics;
  /** Bounds an append to the receipt log. */
  readonly writing: () => Deadline;
  readonly onEvent: (event: DrainEvent) => void;
}

/** A delivery of a batch. */
interface Loaded {
  readonly ticket: Ticket;
  readonly delivery: SpooledDelivery;
}

/** How long to wait for the next step. `woken`: a change of the spool ends the wait. */
interface Pause {
  readonly ms: number;
  readonly woken: boolean;
}

const BACKOFF_MS_MAX = 2000;
const backoff = jittered({ tries_max: Infinity, factor: 2, cap_ms: BACKOFF_MS_MAX });
const FAILURES_MAX = 8;
/** How often an open breaker is polled. */
const POLL_MS = 100;
/** An empty spool is cleared after this time; a failed disk is probed this often. */
const IDLE_MS = 1000;
const REFUSED: Pause = { ms: POLL_MS, woken: false };

export class SpoolDrainer {
  readonly #init: SpoolDrainerInit;
  readonly #waits = new ProviderWaits();
  #failures = 0;
  /** The step in flight, or the last one. */
  #step: Promise<unknown> = Promise.resolve();
  /** Deliveries that were dropped because mailbox has another body under their key. */
  conflicts_total = 0;

  constructor(init: SpoolDrainerInit) {
    this.#init = init;
  }

  async run({ stopping, signal }: Pick<TaskContext, 'stopping' | 'signal'>): Promise<void> {
    const { spool } = this.#init;
    // [interop I-2] The step of a task that was killed ends first.
    await orAborted(this.#step, signal);
    while (!stopping.aborted) {
      const pause = await this.#run(this.#drain(signal), signal);
      if (pause === undefined || !(await this.#isIdleFor(pause, stopping)) || spool.count > 0) continue;
      await this.#run(this.#unlessDiskFails(spool.removeSettled(signal)), signal);
    }
  }

  /** A step goes on if the task is killed. */
  async #run<T>(step: Promise<T>, signal: AbortSignal): Promise<T> {
    this.#step = step.then(
      () => undefined,
      () => undefined,
    );
    return await orAborted(step, signal);
  }

  /** Whether there was nothing to do for the whole time. [interop I-5] [interop I-6] Every wait ends at the stop. */
  async #isIdleFor({ ms, woken }: Pause, stopping: AbortSignal): Promise<boolean> {
    try {
      if (woken) return !(await this.#init.spool.changed.notified(stopping, { within_ms: ms }));
      await sleep(ms, stopping, 'spool.backoff');
    } catch (error) {
      if (!stopping.aborted) throw error;
    }
    return false;
  }

  /** One batch. Returns how long to wait before the next; undefined: not at all. */
  async #drain(signal: AbortSignal): Promise<Pause | undefined> {
    const { spool, mailbox } = this.#init;
    await this.#unlessDiskFails(spool.maintain(signal));
    this.#waits.retain((provider) => spool.holds(provider));
    if (spool.count === 0) return { ms: spool.needsMaintenance ? IDLE_MS : Infinity, woken: true };
    if (!mailbox.canTry) return REFUSED;
    const tickets = spool.take(BATCH_LIMITS, (provider) => this.#waits.allowance(provider));
    if (tickets.length === 0) return { ms: this.#untilNext(), woken: true };
    const loaded = await this.#withReceipts(await this.#load(tickets));
    // A late call of the sender may have stored some of them meanwhile.
    const batch = loaded.filter(({ ticket }) => spool.has(ticket));
    if (batch.length === 0) return undefined;
    const results = await this.#send(batch);
    if (results === undefined) return { ms: backoff.backoff_ms(this.#failures - 1), woken: false };
    this.#apply(batch, results);
    return undefined;
  }

  /** The end of a record's write ends the wait too. A failed disk is probed meanwhile. */
  #untilNext(): number {
    return Math.min(this.#init.spool.isFailing ? IDLE_MS : Infinity, this.#waits.next_ms);
  }

  /** Reads the deliveries. Those behind one that cannot be read wait with it. */
  async #load(tickets: readonly Ticket[]): Promise<readonly Loaded[]> {
    const { spool } = this.#init;
    const reads = await Promise.allSettled(tickets.map((ticket) => spool.read(ticket)));
    const blocked = new Set<string>();
    const loaded: Loaded[] = [];
    for (const [at, ticket] of tickets.entries()) {
      const read = reads[at]!;
      if (blocked.has(ticket.provider)) continue;
      if (read.status === 'rejected') {
        blocked.add(ticket.provider);
        this.#blocked('spool unreadable', ticket.provider, read.reason);
      } else if (read.value === undefined) spool.drop(ticket);
      else loaded.push({ ticket, delivery: read.value });
    }
    return loaded;
  }

  #blocked(kind: 'spool unreadable' | 'spool waits for receipts', provider: string, error: unknown): void {
    const problem = error instanceof Error ? error.message : String(error);
    if (this.#waits.failed(provider)) this.#init.onEvent({ kind, provider, problem });
  }

  /**
   * Writes receipts that a crash prevented between the sync of the spool and that of the receipt log. Without a receipt, the
   * deliveries of the provider wait.
   */
  async #withReceipts(loaded: readonly Loaded[]): Promise<readonly Loaded[]> {
    const { receipts, writing } = this.#init;
    const missing = loaded.filter(({ ticket, delivery }) => ticket.isReplayed && !receipts.has(delivery.id));
    if (missing.length === 0) return loaded;
    using deadline = writing();
    try {
      const restored: readonly WebhookReceipt[] = missing.map(({ delivery }) => delivery.receipt);
      await receipts.append(restored, deadline.signal);
      return loaded;
    } catch (error) {
      const waiting = new Set(missing.map(({ ticket }) => ticket.provider));
      for (const provider of waiting) this.#blocked('spool waits for receipts', provider, error);
      return loaded.filter(({ ticket }) => !waiting.has(ticket.provider));
    }
  }

  /** Undefined if mailbox is away; `Upstream` counts and logs failed calls. */
  async #send(batch: readonly Loaded[]): Promise<readonly SendResult[] | undefined> {
    try {
      const messages = batch.map(({ delivery }) => messageOf(delivery));
      const results = await this.#init.mailbox.send(messages);
      this.#failures = 0;
      return results;
    } catch {
      this.#failures = Math.min(FAILURES_MAX, this.#failures + 1);
      return undefined;
    }
  }

  #apply(batch: readonly Loaded[], results: readonly SendResult[]): void {
    const settled: Ticket[] = [];
    const refused = new Set<string>();
    for (const [at, loaded] of batch.entries()) {
      const { topic } = loaded.delivery;
      // Mailbox refused it because it is behind another.
      if (refused.has(topic)) continue;
      if (this.#isSettledBy(loaded, results[at]!)) settled.push(loaded.ticket);
      else refused.add(topic);
    }
    this.#init.spool.settle(settled);
  }

  #isSettledBy({ ticket: { provider }, delivery: { id, topic } }: Loaded, result: SendResult): boolean {
    const { full, onEvent } = this.#init;
    if (!('error' in result)) {
      full.delete(topic);
      if (this.#waits.succeeded(provider)) onEvent({ kind: 'topic has room', topic });
      return true;
    }
    if (result.error === 'conflict') {
      this.conflicts_total += 1;
      onEvent({ kind: 'spool conflict', provider, id, first: result.id });
      return true;
    }
    if (result.error === 'full' && result.retryable !== false) {
      full.add(topic);
      if (this.#waits.full(provider)) onEvent({ kind: 'topic full', topic });
      return false;
    }
    // It stays until the operator changes the topic or its limits.
    if (this.#waits.failed(provider)) onEvent({ kind: 'topic refused', topic, problem: result.detail });
    return false;
  }

  /** The spool reports a failed disk, and its next maintenance tries again. */
  async #unlessDiskFails(work: Promise<void>): Promise<void> {
    await work.catch(() => undefined);
  }
}
