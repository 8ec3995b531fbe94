/**
 * A mailbox for models: the real one, with its real log, on a disk in memory. The explorer decides when the disk responds.
 *
 *     export const ackOnce = (parts: Parts): Build =>
 *       onMailbox(parts, {}, async (box) => {
 *         await box.send('a'); // alone: the disk responds at once
 *         const [message] = await box.receive();
 *         let result: string | undefined;
 *         return {
 *           tasks: { consumer: async () => void (result = await box.ack(message!)) },
 *           final: () => assert.equal(result, 'ok'),
 *         };
 *       });
 */
import assert from 'node:assert/strict';
import { loadConfig } from '@ron/config';
import type { Build, World } from '@ron/explorer';
import { NEVER } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import type { NackRequest, OutgoingMessage, ReceivedMessage, ReceiveRequest, TokenResult } from '@ron/proto';
import { schema } from '../../../config.ts';
import type { TopicState } from '../../../queue/topic-state.ts';
import type { Mailbox } from '../../mailbox.ts';
import { ModelDisk, type ModelDiskInit } from './model-disk.ts';

/** The class under test; the mutation tests replace it. */
export interface Parts {
  readonly Mailbox: typeof Mailbox;
}

export const TOPIC = 'jobs';
const DIR = '/mailbox';
const MIB = 1024 * 1024;
const config = loadConfig({ schema, flags: [`--data_dir=${DIR}`, '--topics.max_bytes=1KiB'] });

export function openOn(parts: Parts, fs: FileSystem): Promise<Mailbox> {
  return parts.Mailbox.open({
    dir: DIR,
    fs,
    segment_bytes: 4 * MIB,
    page_bits: 2,
    config: { value: config },
    holds_max: 4,
    onEvent: () => undefined,
    signal: NEVER,
  });
}

export class ModelMailbox {
  readonly mailbox: Mailbox;
  readonly disk: ModelDisk;

  private constructor(mailbox: Mailbox, disk: ModelDisk) {
    this.mailbox = mailbox;
    this.disk = disk;
  }

  static async open(world: World, parts: Parts, init: ModelDiskInit): Promise<ModelMailbox> {
    const disk = new ModelDisk(world, init);
    return new ModelMailbox(await openOn(parts, disk), disk);
  }

  /** The counts of `TOPIC`, once it exists. */
  get counts(): TopicState {
    return this.mailbox.parts.topics.find(TOPIC)!.state;
  }

  /** Resolves with the sequence number, after the sync. */
  async send(payload: string, more: Partial<OutgoingMessage> = {}): Promise<number> {
    const [result] = await this.mailbox.send([{ topic: TOPIC, payload: Buffer.from(payload), ...more }], NEVER);
    assert.ok(result !== undefined && 'seq' in result, 'a message was refused');
    return result.seq;
  }

  async receive(request: ReceiveRequest = {}): Promise<readonly ReceivedMessage[]> {
    return (await this.mailbox.receive(TOPIC, request, NEVER)).messages;
  }

  async awaitMessage(request: ReceiveRequest): Promise<readonly ReceivedMessage[]> {
    return (await this.mailbox.awaitMessage(TOPIC, request, NEVER, NEVER)).messages;
  }

  async ack({ token }: ReceivedMessage): Promise<TokenResult> {
    return (await this.mailbox.ack(TOPIC, [token], NEVER))[0]!;
  }

  /** Ends leases and delays that are due, as the task of the service does. */
  readonly leaseClock = (stopping: AbortSignal): Promise<void> => this.mailbox.parts.clock.run(stopping);

  async nack({ token }: ReceivedMessage, how: NackRequest): Promise<TokenResult> {
    return (await this.mailbox.nack(TOPIC, [token], how, NEVER))[0]!;
  }

  async extend({ token }: ReceivedMessage, visibility_ms: number): Promise<TokenResult> {
    return (await this.mailbox.extend(TOPIC, [token], visibility_ms, NEVER))[0]!;
  }

  /** [mailbox I-8] */
  assertLedger(): void {
    for (const { name, state } of this.mailbox.parts.topics.all())
      assert.equal(state.ledgerGap(), 0, `the ledger of ${name} does not balance`);
  }
}

/** The concurrent part of a model. */
export interface Scenario {
  readonly tasks: Readonly<Record<string, () => Promise<void>>>;
  /** Stopped when all tasks have ended. */
  readonly background?: Readonly<Record<string, (stopping: AbortSignal) => Promise<void>>>;
  /** Throws when something is wrong. Called after each turn. */
  readonly invariant?: () => void;
  /** The same, when all tasks have ended. */
  readonly final: () => void;
}

/** A model on one mailbox. `setup` runs alone; then its tasks run concurrently, and the disk takes time. */
export function onMailbox(
  parts: Parts,
  init: ModelDiskInit,
  setup: (box: ModelMailbox, world: World) => Promise<Scenario>,
): Build {
  return (world) => {
    let box: ModelMailbox | undefined;
    let scenario: Scenario | undefined;
    // It is open before the first task starts: the disk responds at once.
    void ModelMailbox.open(world, parts, init).then((opened) => (box = opened));
    world.task('setup', async () => {
      assert.ok(box !== undefined, 'the mailbox is open');
      scenario = await setup(box, world);
      box.disk.isLive = true;
      await run(world, scenario);
    });
    return {
      invariant: () => {
        box?.assertLedger();
        scenario?.invariant?.();
      },
      final: () => {
        assert.equal(box!.mailbox.parts.log.check()?.text, undefined, 'the log and the state disagree');
        scenario!.final();
      },
    };
  };
}

const STOPPED = new Error('stopped');

/** Tasks arrive with an I/O operation: a start would always come before the pauses of the log. */
async function run(world: World, { tasks, background = {} }: Scenario): Promise<void> {
  const stop = new AbortController();
  const { signal } = stop;
  const running = Object.values(background).map((task) =>
    task(signal).catch((error: unknown) => assert.equal(error, STOPPED)),
  );
  const arrive = async ([name, task]: readonly [string, () => Promise<void>]): Promise<void> => {
    await world.io(`${name} arrives`);
    await task();
  };
  await Promise.all(Object.entries(tasks).map(arrive));
  stop.abort(STOPPED);
  await Promise.all(running);
}
