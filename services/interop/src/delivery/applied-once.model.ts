/**
 * Model of the seed: webhook --> mailbox --> worker --> audit, on the real queue, sender, spool, drainer and recorder.
 *
 * A provider sends a webhook until it is accepted, and once more if the answer was lost. Mailbox has idempotency keys and leases;
 * it may be away, or its answer may be lost. A worker leases a message, and applies it if its ack is not stale; its lease may end
 * before. All of these faults together happen `faults` times, at any moment.
 *
 * Each webhook is applied once, and in the end every accepted one is; each request is recorded in the audit log once.
 */
import assert from 'node:assert/strict';
import type { Build, World } from '@ron/explorer';
import { Cell, Deadline, isRonError, Mpsc, NEVER, Notify, RonError, touch, WorkQueue } from '@ron/kernel';
import type { OutgoingMessage, SendResult, WebhookReceipt } from '@ron/proto';
import type { AuditEvent } from '../audit/audit-event.ts';
import { concurrency } from '../concurrency.ts';
import type { DeliveryRecorder } from '../deliveries/delivery-recorder.ts';
import type { RecentDeliveries } from '../deliveries/recent-deliveries.ts';
import { RefusalSums } from '../deliveries/refusal-sums.ts';
import { FullTopics } from '../mailbox/full-topics.ts';
import { SpoolDrainer } from '../spool/spool-drainer.ts';
import { Spool } from '../spool/spool.ts';
import { deliveryOf, DIR } from '../spool/testing/make.ts';
import { ModelDisk } from '../spool/testing/model-disk.ts';
import type { Sender } from './sender.ts';

export interface AppliedParts {
  readonly Sender: typeof Sender;
  readonly DeliveryRecorder: typeof DeliveryRecorder;
}

export interface AppliedShape {
  readonly webhooks: number;
  readonly faults: number;
}

const B3 = `b3:${'0'.repeat(64)}`;
const PATIENT_MS = 60_000;
const { lanes } = concurrency.channels.webhooks;
const SPOOL = { bytes_max: 64 * 1024, segment_bytes: 8 * 1024, deliveries_max: 16, page_bits: 1 };

/** Chooses between success and a fault, as long as there are faults left. */
class Faults {
  readonly #world: World;
  left: number;

  constructor(world: World, left: number) {
    this.#world = world;
    this.left = left;
  }

  choose<T extends string>(label: string, sound: T, ...faults: readonly T[]): T {
    touch(this);
    if (this.left === 0) return sound;
    const chosen = this.#world.choose(label, [sound, ...faults]);
    if (chosen !== sound) this.left -= 1;
    return chosen;
  }
}

interface Message {
  readonly id: string;
  /** Names the webhook; its key is separate. */
  readonly webhook: string;
  readonly key: string | undefined;
  delivery: number;
  state: 'ready' | 'leased' | 'acked';
}

class ModelMailbox {
  readonly isReady = true;
  readonly canTry = true;
  readonly messages: Message[] = [];
  readonly changed = new Notify('mailbox.changed');
  readonly #world: World;
  readonly #faults: Faults;

  constructor(world: World, faults: Faults) {
    this.#world = world;
    this.#faults = faults;
  }

  async send(messages: readonly OutgoingMessage[]): Promise<readonly SendResult[]> {
    await this.#world.io('mailbox');
    const outcome = this.#faults.choose('mailbox', 'sound', 'is away', 'its answer is lost');
    if (outcome === 'is away') throw new RonError('unreachable', 'mailbox is away');
    touch(this);
    const results = messages.map((message) => this.#store(message));
    this.changed.notifyOne();
    if (outcome === 'its answer is lost') throw new RonError('unreachable', 'the answer is lost');
    return results;
  }

  #store({ id, idempotency_key: key, payload }: OutgoingMessage): SendResult {
    const known = key === undefined ? undefined : this.messages.find((message) => message.key === key);
    if (known !== undefined) return { id: known.id, seq: 1, duplicate: true, b3: B3 };
    this.messages.push({ id: id!, webhook: String(payload[0]), key, delivery: 0, state: 'ready' });
    return { id: id!, seq: this.messages.length, duplicate: false, b3: B3 };
  }

  /** Leases a message. */
  async receive(): Promise<{ readonly message: Message; readonly token: number }> {
    for (;;) {
      touch(this);
      const message = this.messages.find(({ state }) => state === 'ready');
      if (message === undefined) {
        await this.changed.notified(NEVER);
        continue;
      }
      message.state = 'leased';
      message.delivery += 1;
      return { message, token: message.delivery };
    }
  }

  /** False if the lease has ended. */
  ack(message: Message, token: number): boolean {
    touch(this);
    if (message.state !== 'leased' || message.delivery !== token) return false;
    message.state = 'acked';
    return true;
  }

  endLease(message: Message): void {
    touch(this);
    message.state = 'ready';
    this.changed.notifyOne();
  }
}

class ModelReceipts {
  readonly written = new Map<string, WebhookReceipt>();
  readonly isFull = false;
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
  }

  has = (id: string): boolean => this.written.has(id);
  isRestorable = (): boolean => true;
  read = (id: string): Promise<WebhookReceipt | undefined> => Promise.resolve(this.written.get(id));
  append = async (receipts: readonly WebhookReceipt[]): Promise<void> => {
    await this.#world.io('receipts');
    touch(this);
    for (const receipt of receipts) this.written.set(receipt.id, receipt);
  };
}

export function appliedOnce(parts: AppliedParts, { webhooks, faults: faults_max }: AppliedShape): Build {
  return (world) => {
    const faults = new Faults(world, faults_max);
    const mailbox = new ModelMailbox(world, faults);
    const receipts = new ModelReceipts(world);
    const audit = new Mpsc<AuditEvent>('audit', 8);
    const sums = new RefusalSums(new Cell('counters', 3, new Map()));
    const events = { publish: () => 1 };
    const recent: Pick<RecentDeliveries, 'add'> = { add: (entry) => ({ seq: 1, ...entry }) };
    const recorder = new parts.DeliveryRecorder({ recent, sums, audit, events });
    const seen = { requests: 0, accepted: [] as string[], applied: [] as string[], audited: [] as string[] };
    const queue = new WorkQueue('webhooks', { capacity: 8, lanes });
    const full = new FullTopics();
    const writing = (): Deadline => Deadline.unlimited('writing');
    const common = { mailbox, receipts, full, writing };
    let sender: Sender | undefined;
    let spool: Spool | undefined;
    // It is open before the first task starts: the disk responds at once.
    const opening = { dir: DIR, fs: new ModelDisk(world), ...SPOOL, onEvent: () => undefined, signal: NEVER };
    void Spool.open(opening).then((opened) => {
      spool = opened;
      sender = new parts.Sender({ ...common, queue, spool, spool_after_ms: () => PATIENT_MS });
    });

    /** The work of the intake on a verified request. */
    const request = async (webhook: number): Promise<boolean> => {
      const corr_id = String((seen.requests += 1));
      const { receipt, ...delivery } = deliveryOf(seen.requests, 'p', 1, webhook);
      const verified = { delivery: { ...delivery, payload: Buffer.of(webhook) }, receipt };
      try {
        const accepted = await sender!.store(verified, Deadline.unlimited('request'));
        assert.ok(receipts.has(accepted.receipt), 'an accepted delivery has no receipt');
        const outcome = accepted.duplicate ? 'duplicate' : accepted.place === 'spool' ? 'spooled' : 'accepted';
        recorder.record({ provider: 'p', outcome, corr_id, receipt: accepted.receipt });
        return true;
      } catch (error) {
        assert.ok(isRonError(error), String(error));
        recorder.record({ provider: 'p', outcome: 'refused', corr_id });
        return false;
      }
    };
    for (let webhook = 1; webhook <= webhooks; webhook += 1)
      world.task(`provider of ${webhook}`, async () => {
        await world.io('the webhook arrives');
        while (!(await request(webhook)) || faults.choose('answer', 'sound', 'is lost') === 'is lost') touch(seen);
        seen.accepted.push(String(webhook));
      });
    const drain = (): Promise<void> => {
      const drainer = new SpoolDrainer({ ...common, spool: spool!, onEvent: ({ kind }) => assert.fail(kind) });
      return drainer.run({ stopping: NEVER, signal: NEVER });
    };
    const work = async (): Promise<void> => {
      for (;;) {
        const { message, token } = await mailbox.receive();
        await world.io('work');
        if (faults.choose('lease', 'sound', 'ends') === 'ends') mailbox.endLease(message);
        if (mailbox.ack(message, token)) seen.applied.push(message.webhook);
      }
    };
    const writeAudit = async (): Promise<void> => {
      for (let event = await audit.recv(NEVER); event !== undefined; event = await audit.recv(NEVER))
        if (event.kind === 'delivery') seen.audited.push(event.corr_id);
    };
    // One task: in which order they start changes nothing.
    const daemons = async (): Promise<void> => {
      await Promise.all([sender!.run({ signal: NEVER }), drain(), work(), writeAudit()]);
    };
    world.task('services', daemons, { daemon: true });
    return {
      state: () => JSON.stringify([seen, mailbox.messages, [...receipts.written.keys()], faults.left, spool?.count]),
      invariant: () => {
        assert.equal(new Set(seen.applied).size, seen.applied.length, 'a webhook is applied twice');
        assert.equal(new Set(seen.audited).size, seen.audited.length, 'a request is recorded twice');
      },
      final: () => {
        assert.deepEqual(seen.applied.toSorted(), seen.accepted.toSorted(), 'an accepted webhook is not applied');
        assert.equal(seen.audited.length, seen.requests, 'a request is not recorded');
        assert.deepEqual([queue.depth, queue.running, spool!.count], [0, 0, 0], 'all is drained');
      },
    };
  };
}
