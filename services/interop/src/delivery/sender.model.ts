/**
 * Model of the seed: listener --> `work` with few places --> sender, with a stop at any moment, on the real queue and sender.
 *
 * Every webhook gets exactly one answer, and an accepted one is durable with its receipt before it is answered. No more wait
 * than there are places: a webhook without one is refused with `busy` before anything else happens. After a stop the sender
 * stores those that wait, or is aborted at the drain deadline, and ends. Mailbox may answer late or fail; then the spool takes
 * the delivery.
 */
import assert from 'node:assert/strict';
import type { Build, World } from '@ron/explorer';
import { Deadline, isRonError, RonError, touch, type WorkQueue } from '@ron/kernel';
import type { OutgoingMessage, WebhookReceipt, SendResult } from '@ron/proto';
import { concurrency } from '../concurrency.ts';
import type { Delivery } from '../mailbox/delivery.ts';
import { FullTopics } from '../mailbox/full-topics.ts';
import type { Sender } from './sender.ts';
import type { VerifiedDelivery } from './accepted.ts';

export interface SenderParts {
  readonly Sender: typeof Sender;
  readonly WorkQueue: typeof WorkQueue;
}

export interface SenderShape {
  readonly deliveries: number;
  /** Webhooks that may wait. */
  readonly capacity: number;
  readonly stops: boolean;
  readonly mailbox: 'sound' | 'fails' | 'slow';
}

const SPOOL_AFTER_MS = 250;
const { lanes } = concurrency.channels.webhooks;
const B3 = `b3:${'0'.repeat(64)}`;

/** Mailbox, spool and receipt log: a write is durable after one step of I/O. */
class Stores {
  readonly #world: World;
  readonly #mailbox: SenderShape['mailbox'];
  readonly sent: string[] = [];
  readonly spooled: string[] = [];
  readonly receipts: string[] = [];
  /** Writes under way. */
  writes = 0;

  constructor(world: World, mailbox: SenderShape['mailbox']) {
    this.#world = world;
    this.#mailbox = mailbox;
  }

  async send(messages: readonly OutgoingMessage[]): Promise<readonly SendResult[]> {
    await this.#world.io('mailbox');
    if (this.#mailbox === 'fails') throw new RonError('unreachable', 'mailbox is away');
    touch(this);
    return messages.map(({ id }) => {
      this.sent.push(id!);
      return { id: id!, seq: this.sent.length, duplicate: false, b3: B3 };
    });
  }

  async keep({ id }: Delivery): Promise<{ id: string; duplicate: boolean }> {
    await this.#write('spool');
    this.spooled.push(id);
    return { id, duplicate: false };
  }

  async append(receipts: readonly WebhookReceipt[]): Promise<void> {
    await this.#write('receipts');
    for (const { id } of receipts) this.receipts.push(id);
  }

  async #write(log: string): Promise<void> {
    touch(this);
    this.writes += 1;
    await this.#world.io(log);
    touch(this);
    this.writes -= 1;
  }

  isStored(id: string): boolean {
    return this.sent.includes(id) || this.spooled.includes(id);
  }
}

/** `onEnd` is called with the answers of each schedule that was run to its end. */
export function senderAgainstStop(
  parts: SenderParts,
  shape: SenderShape,
  onEnd: (answers: readonly string[]) => void = () => undefined,
): Build {
  return (world) => {
    const { deliveries, capacity, stops, mailbox } = shape;
    const queue = new parts.WorkQueue('webhooks', { capacity, lanes });
    const stores = new Stores(world, mailbox);
    const sender = new parts.Sender({
      queue,
      mailbox: { isReady: true, send: (messages) => stores.send(messages) },
      spool: {
        holds: () => false,
        idOf: () => undefined,
        append: (delivery) => stores.keep(delivery),
        receiptOf: () => Promise.resolve(undefined),
        delivered: () => undefined,
      },
      receipts: {
        has: (id) => stores.receipts.includes(id),
        isRestorable: () => true,
        read: () => Promise.resolve(undefined),
        append: (receipts) => stores.append(receipts),
        isFull: false,
      },
      full: new FullTopics(),
      spool_after_ms: () => (mailbox === 'slow' ? SPOOL_AFTER_MS : 60_000),
      writing: () => Deadline.unlimited('writing'),
    });
    const aborting = new AbortController();
    const seen = { answers: [] as string[], hasSender: true };
    const submit = async (at: number): Promise<void> => {
      const [isFull, turn] = [queue.depth === capacity, world.turns()];
      const answer = await sender.store(deliveryOf(at), Deadline.unlimited('request')).then(
        ({ receipt }) => {
          touch(stores);
          assert.ok(stores.isStored(receipt), 'an accepted delivery is not durable');
          assert.ok(stores.receipts.includes(receipt), 'an accepted delivery has no receipt');
          return 'accepted';
        },
        (error: unknown) => (isRonError(error) ? error.code : assert.fail(String(error))),
      );
      touch(seen);
      assert.ok(!seen.answers.some((other) => other.startsWith(`${at}:`)), 'a webhook gets one answer');
      assert.ok(stops || answer === 'accepted' || answer === 'busy', 'a webhook that was queued is stored');
      // [interop I-3]
      if (isFull) assert.notEqual(answer, 'accepted', 'a full queue refuses');
      if (isFull) assert.equal(world.turns(), turn, 'a full queue refuses at once');
      seen.answers.push(`${at}:${answer}`);
    };
    world.task('listener', async () => {
      await Promise.all(Array.from({ length: deliveries }, (_, at) => submit(at)));
    });
    world.task(
      'sender',
      async () => {
        await sender.run({ signal: aborting.signal }).catch((error: unknown) => {
          assert.equal(error, aborting.signal.reason, 'the sender ends by the stop only');
        });
        touch(seen);
        touch(stores);
        assert.equal(stores.writes, 0, 'the sender ends before its writes');
        seen.hasSender = false;
      },
      { daemon: !stops },
    );
    if (stops) {
      world.task('stop', async () => {
        queue.close();
        if (world.choose('drain', ['in time', 'too late']) === 'in time') return;
        aborting.abort(new RonError('canceled', 'the drain deadline has passed'));
        queue.abortQueued(new RonError('draining', 'interop has stopped'));
      });
    }
    return {
      state: () => JSON.stringify([seen, stores, queue.depth, queue.running, queue.idle, aborting.signal.aborted]),
      // [interop I-3] [interop I-9]
      invariant: () => assert.ok(queue.depth <= capacity, 'more webhooks wait than there are places'),
      final: () => {
        // [interop I-5] [interop I-6] [interop I-8]
        assert.equal(seen.answers.length, deliveries, 'every webhook is answered');
        assert.equal(seen.hasSender, !stops, 'the sender ends with the stop');
        assert.deepEqual([queue.depth, queue.running], [0, 0], 'nothing is left');
        onEnd(seen.answers);
      },
    };
  };
}

function deliveryOf(at: number): VerifiedDelivery {
  const id = `id-${at}`;
  const common = { id, provider: 'p', topic: 'hooks.p', received_ms: 0 };
  return {
    delivery: { ...common, idempotency_key: id, headers: {}, payload: new Uint8Array(1) },
    receipt: { ...common, scheme: 'github', secret_version: 1, b3: B3, bytes: 1 },
  };
}
