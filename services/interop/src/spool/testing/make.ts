/** Deliveries and a mailbox for the tests of the spool. */
import { Deadline, NEVER, RonError } from '@ron/kernel';
import { formatUlid, type OutgoingMessage, type SendResult, type WebhookReceipt } from '@ron/proto';
import type { MailboxDrain, MailboxSends } from '../../mailbox/mailbox.ts';
import { FullTopics } from '../../mailbox/full-topics.ts';
import type { SpooledDelivery } from '../store/delivery-record.ts';
import { SpoolDrainer, type DrainEvent } from '../spool-drainer.ts';
import { Spool, type SpoolEvent, type SpoolInit } from '../spool.ts';

const B3 = `b3:${'0'.repeat(64)}`;
export const DIR = '/spool';

export const ulidOf = (n: number): string => {
  const bytes = Buffer.alloc(16);
  bytes.writeUInt32BE(n, 12);
  return formatUlid(bytes);
};

/** The idempotency key of the delivery `n`. */
export const keyOf = (n: number): string => n.toString(16).padStart(64, '0');

export function deliveryOf(n: number, provider = 'p', payload_bytes = 1, key: number = n): SpooledDelivery {
  const common = { id: ulidOf(n), provider, topic: `hooks.${provider}`, received_ms: 1000 + n };
  const payload = Buffer.alloc(payload_bytes, n % 251);
  const receipt: WebhookReceipt = { ...common, scheme: 'github', secret_version: 1, b3: B3, bytes: payload_bytes };
  return { ...common, idempotency_key: keyOf(key), headers: { 'content-type': 'text/plain' }, payload, receipt };
}

export interface Opened {
  readonly spool: Spool;
  readonly events: SpoolEvent[];
}

const MIB = 1024 * 1024;

export async function openSpool(init: Partial<SpoolInit> = {}): Promise<Opened> {
  const events: SpoolEvent[] = [];
  const spool = await Spool.open({
    dir: DIR,
    bytes_max: 8 * MIB,
    deliveries_max: 1000,
    page_bits: 2,
    onEvent: (event) => void events.push(event),
    signal: NEVER,
    ...init,
  });
  return { spool, events };
}

/** All deliveries that wait, in the order in which a drainer takes them. */
export async function takeAll(spool: Spool, limits = { messages: 128, bytes: MIB }): Promise<SpooledDelivery[]> {
  const taken: SpooledDelivery[] = [];
  while (spool.count > 0) {
    const tickets = spool.take(limits, () => Infinity);
    for (const ticket of tickets) taken.push((await spool.read(ticket))!);
    spool.settle(tickets);
  }
  return taken;
}

/** A mailbox that keeps one message for each key, and the order of the messages of a topic. */
export class FakeMailbox implements MailboxDrain, MailboxSends {
  isReady = true;
  canTry = true;
  isAway = false;
  /** First arrivals, by id, in order. */
  readonly stored: string[] = [];
  readonly calls: (readonly string[])[] = [];
  readonly bodies = new Map<string, string>();
  readonly #firsts = new Map<string, string>();
  /** Refuses messages; `large`: the message never fits. */
  refuse: (message: OutgoingMessage) => 'full' | 'large' | 'topic' | undefined = () => undefined;
  onSend: () => Promise<void> = () => Promise.resolve();

  async send(messages: readonly OutgoingMessage[]): Promise<readonly SendResult[]> {
    this.calls.push(messages.map(({ id }) => id!));
    await this.onSend();
    if (this.isAway) throw new RonError('unreachable', 'mailbox is away');
    const refused = new Set<string>();
    return messages.map((message) => {
      if (refused.has(message.topic)) return { error: 'full', detail: 'an earlier message was refused' };
      const result = this.#store(message);
      if ('error' in result && result.error !== 'conflict') refused.add(message.topic);
      return result;
    });
  }

  firstOf(idempotency_key: string): string | undefined {
    return this.#firsts.get(idempotency_key);
  }

  #store(message: OutgoingMessage): SendResult {
    const { id, idempotency_key, payload } = message;
    const body = Buffer.from(payload).toString('latin1');
    const known = this.bodies.get(idempotency_key!);
    if (known !== undefined && known !== body)
      return { error: 'conflict', id: this.firstOf(idempotency_key!) ?? id!, detail: 'another body' };
    if (known !== undefined) return { id: this.firstOf(idempotency_key!) ?? id!, seq: 1, duplicate: true, b3: B3 };
    const error = this.refuse(message);
    if (error === 'large') return { error: 'full', detail: error, retryable: false };
    if (error !== undefined) return { error, detail: error };
    this.bodies.set(idempotency_key!, body);
    this.#firsts.set(idempotency_key!, id!);
    this.stored.push(id!);
    return { id: id!, seq: this.stored.length, duplicate: false, b3: B3 };
  }
}

export class FakeReceipts {
  readonly written: string[] = [];
  isFailing = false;
  has = (id: string): boolean => this.written.includes(id);
  append = async (receipts: readonly WebhookReceipt[]): Promise<void> => {
    if (this.isFailing) throw new RonError('not_ready', 'the disk failed');
    for (const { id } of receipts) this.written.push(id);
  };
}

export interface Drained {
  readonly mailbox: FakeMailbox;
  readonly receipts: FakeReceipts;
  readonly full: FullTopics;
  readonly events: DrainEvent[];
  readonly drainer: SpoolDrainer;
  /** Stops the task. */
  readonly stop: () => Promise<void>;
}

/** Runs a drainer. */
export function drain(spool: Spool, mailbox: FakeMailbox = new FakeMailbox()): Drained {
  const receipts = new FakeReceipts();
  const full = new FullTopics();
  const events: DrainEvent[] = [];
  const writing = (): Deadline => Deadline.after('writing', 5000);
  const onEvent = (event: DrainEvent): void => void events.push(event);
  const drainer = new SpoolDrainer({ spool, mailbox, receipts, full, writing, onEvent });
  const stopping = new AbortController();
  const done = drainer.run({ stopping: stopping.signal, signal: NEVER });
  const stop = async (): Promise<void> => {
    stopping.abort(new Error('stop'));
    await done;
  };
  return { mailbox, receipts, full, events, drainer, stop };
}
