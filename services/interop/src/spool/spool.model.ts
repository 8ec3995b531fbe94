/**
 * Model: the spool against its drainer, on the real spool, drainer and log. A sender sends deliveries of one provider one after
 * another, as `delivery/sender.ts` does: directly, or to the spool if deliveries wait there or mailbox fails or is late. A call
 * that is late goes on. Mailbox may fail or be late `faults` times. The process may crash at any change of the disk.
 *
 * Every accepted delivery reaches mailbox, in order; a delivery is not sent after it was settled, except after a crash; the disk
 * never takes more than its bound.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import type { Build, World } from '@ron/explorer';
import { Deadline, NEVER, RonError, touch } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { CrashFileSystem } from '@ron/log/testing';
import type { OutgoingMessage, SendResult } from '@ron/proto';
import { FullTopics } from '../mailbox/full-topics.ts';
import type { SpoolDrainer } from './spool-drainer.ts';
import { Spool } from './spool.ts';
import { ModelDisk, type Files } from './testing/model-disk.ts';
import { deliveryOf, DIR, takeAll, ulidOf } from './testing/make.ts';

export interface SpoolParts {
  readonly Spool: typeof Spool;
  readonly SpoolDrainer: typeof SpoolDrainer;
}

export interface SpoolShape {
  readonly deliveries: number;
  /** Calls of mailbox that fail or are late. */
  readonly faults: number;
}

type Outcome = 'stored' | 'fails' | 'late';

const LIMITS = { bytes_max: 64 * 1024, segment_bytes: 8 * 1024, deliveries_max: 16, page_bits: 1 };
const B3 = `b3:${'0'.repeat(64)}`;

const openOn = (Kind: typeof Spool, fs: ModelDisk | CrashFileSystem): Promise<Spool> =>
  Kind.open({ dir: DIR, fs, ...LIMITS, onEvent: () => undefined, signal: NEVER });

/** Mailbox: keeps one message for each key. */
class ModelMailbox {
  readonly isReady = true;
  readonly canTry = true;
  /** First arrivals, in order. */
  readonly stored: string[] = [];
  readonly #world: World;
  #faults_left: number;

  constructor(world: World, faults: number) {
    this.#world = world;
    this.#faults_left = faults;
  }

  /** A call of the drainer. */
  async send(messages: readonly OutgoingMessage[]): Promise<readonly SendResult[]> {
    await this.#world.io('mailbox');
    if (this.outcome(['stored', 'fails']) === 'fails') throw new RonError('unreachable', 'mailbox is away');
    return messages.map(({ id }) => this.store(id!));
  }

  outcome(outcomes: readonly Outcome[]): Outcome {
    touch(this);
    if (this.#faults_left === 0) return 'stored';
    const outcome = this.#world.choose('mailbox', outcomes);
    if (outcome !== 'stored') this.#faults_left -= 1;
    return outcome;
  }

  store(id: string): SendResult {
    touch(this);
    const duplicate = this.stored.includes(id);
    if (!duplicate) this.stored.push(id);
    return { id, seq: this.stored.length, duplicate, b3: B3 };
  }
}

/** The disks that a crash could leave behind, with the deliveries accepted and stored by then. Equal ones are kept once. */
export class SpoolCrashes {
  readonly #points = new Map<
    string,
    { readonly files: Files; readonly accepted: string[]; readonly stored: string[] }
  >();

  get size(): number {
    return this.#points.size;
  }

  note(disk: ModelDisk, accepted: readonly string[], stored: readonly string[]): void {
    for (const files of disk.images()) {
      const hash = createHash('sha256').update(JSON.stringify([accepted, stored, [...files.keys()]]));
      for (const bytes of files.values()) hash.update(bytes);
      const key = hash.digest('base64');
      if (!this.#points.has(key)) this.#points.set(key, { files, accepted: [...accepted], stored: [...stored] });
    }
  }

  /** Opens a spool on each disk, and sends its deliveries. */
  async check({ Spool: Kind }: SpoolParts): Promise<void> {
    for (const { files, accepted, stored } of this.#points.values())
      await new VirtualSched().during(async () => {
        const spool = await openOn(Kind, new CrashFileSystem(files));
        const sent = (await takeAll(spool)).map(({ id }) => id);
        await spool.close();
        const arrived = [...new Set([...stored, ...sent])].filter((id) => accepted.includes(id));
        assert.deepEqual(arrived, accepted, 'after a crash an accepted delivery is lost, or out of order');
      });
  }
}

export function spoolAgainstDrain(parts: SpoolParts, shape: SpoolShape, crashes: SpoolCrashes): Build {
  return (world) => {
    const disk = new ModelDisk(world);
    const mailbox = new ModelMailbox(world, shape.faults);
    const accepted: string[] = [];
    let spool: Spool | undefined;
    // It is open before the first task starts: the disk responds at once.
    void openOn(parts.Spool, disk).then((opened) => (spool = opened));
    const note = (): void => crashes.note(disk, accepted, mailbox.stored);
    const late: Promise<void>[] = [];
    const settled = new Set<string>();
    /** Sent after they were settled. The drainer takes an error of `send` for an outage. */
    const repeated: string[] = [];
    const finishLate = async (id: string): Promise<void> => {
      await world.io('late call');
      mailbox.store(id);
      spool!.delivered(id);
      settled.add(id);
    };
    const spoolIt = async (n: number): Promise<void> => {
      assert.deepEqual(await spool!.append(deliveryOf(n), NEVER), { id: ulidOf(n), duplicate: false });
    };
    const store = async (n: number): Promise<void> => {
      if (spool!.holds('p')) return await spoolIt(n);
      await world.io('direct call');
      const outcome = mailbox.outcome(['stored', 'fails', 'late']);
      if (outcome === 'stored') return void mailbox.store(ulidOf(n));
      if (outcome === 'late') late.push(finishLate(ulidOf(n)));
      await spoolIt(n);
    };
    world.task('sender', async () => {
      await world.io('sender arrives');
      disk.isLive = true;
      disk.onChange = note;
      for (let n = 1; n <= shape.deliveries; n++) {
        await store(n);
        touch(mailbox);
        accepted.push(ulidOf(n));
        note();
      }
      await Promise.all(late);
    });
    world.task(
      'drainer',
      async () => {
        await world.io('drainer arrives');
        const send = async (messages: readonly OutgoingMessage[]): Promise<readonly SendResult[]> => {
          for (const { id } of messages) if (settled.has(id!)) repeated.push(id!);
          const results = await mailbox.send(messages);
          for (const { id } of messages) settled.add(id!);
          return results;
        };
        const drainer = new parts.SpoolDrainer({
          spool: spool!,
          mailbox: { canTry: true, send },
          receipts: { has: () => true, append: () => Promise.resolve() },
          full: new FullTopics(),
          writing: () => Deadline.unlimited('writing'),
          onEvent: (event) => assert.fail(`unexpected event: ${event.kind}`),
        });
        await drainer.run({ stopping: NEVER, signal: NEVER });
      },
      { daemon: true },
    );
    return {
      state: () => JSON.stringify([accepted, mailbox, spool?.count, spool?.bytes]),
      invariant: () => {
        assert.deepEqual(repeated, [], 'a settled delivery was sent again');
        assert.ok(disk.bytes <= LIMITS.bytes_max, 'the disk takes more than its bound');
        const first = mailbox.stored.filter((id) => accepted.includes(id));
        assert.deepEqual(first, first.toSorted(), 'a newer delivery overtook an older one');
      },
      final: () => {
        assert.deepEqual(mailbox.stored, accepted, 'an accepted delivery is lost, or out of order');
        assert.equal(spool!.count, 0, 'the spool is drained');
      },
    };
  };
}
