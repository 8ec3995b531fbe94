/**
 * Power cuts of a mailbox on `CrashFileSystem`: a history runs once, then a mailbox is opened on each disk that a power cut
 * after each operation could leave behind, and is drained and checked.
 *
 * Time is virtual and moves only while a mailbox is drained. The times of a history are numbers of disk operations: a call
 * that was answered after a crash point has no answer at that point, and one that began after it did not happen.
 */
import assert from 'node:assert/strict';
import { NEVER } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { CrashFileSystem, type Faults } from '@ron/log/testing';
import type { DeadLetterDto, OutgoingMessage, TopicPolicy } from '@ron/proto';
import { addressOf } from '@ron/testkit/service';
import type { MailboxOperations } from '../../src/mailbox/operations.ts';
import { violationsOf } from './checker.ts';
import { Recorder, type FinalTopic, type HistoryCall } from './history.ts';
import { MAX_DELIVERIES, openMailbox, type OpenMailbox } from './open-mailbox.ts';
import { RecordingClient } from './recording-client.ts';
import type { Wire } from './wires.ts';

/** Longer than every lease, delay and backoff of a history. */
const PATIENCE_MS = 120_000;
const DRAIN_ROUNDS_MAX = 20;
/** The time of a restart, much shorter than the window of idempotency keys. */
const REBOOT_MS = 1000;
/** Of one crash point. */
const IMAGES_MAX = 100;
/** Times after the crash: larger than all numbers of operations, and far apart. */
const AFTER = 1_000_000;
const STEP = 1000;

export const operationsWire = (operations: MailboxOperations): Wire => ({
  send: (messages) => operations.send(messages, NEVER),
  receive: async (topic, request) => (await operations.receive(topic, request, NEVER)).messages,
  ack: (topic, tokens) => operations.ack(topic, tokens, NEVER),
  nack: (topic, tokens, how) => operations.nack(topic, tokens, how, NEVER),
  extend: (topic, tokens, visibility_ms) => operations.extend(topic, tokens, visibility_ms, NEVER),
});

/** A call of a history besides those of its clients: its operations on disk. */
interface Span {
  readonly began: number;
  readonly ended: number;
}

/** The mailbox that runs a history, and the notes for the check after a crash. */
export class CrashRun {
  readonly disk: CrashFileSystem;
  readonly recorder = new Recorder(() => this.disk.operations);
  readonly policies: ({ readonly topic: string; readonly policy: Partial<TopicPolicy> } & Span)[] = [];
  readonly removals: ({
    readonly topic: string;
    readonly seqs: readonly number[];
    readonly isReplay: boolean;
  } & Span)[] = [];
  /** The messages of all sends, by the hash of their payload. */
  readonly messages = new Map<string, OutgoingMessage>();
  readonly client: RecordingClient;
  readonly time: VirtualSched;
  readonly #mailbox: OpenMailbox;

  constructor(mailbox: OpenMailbox, disk: CrashFileSystem, time: VirtualSched) {
    this.disk = disk;
    this.time = time;
    this.#mailbox = mailbox;
    this.client = new RecordingClient(this.recorder, operationsWire(mailbox.operations));
  }

  async send(messages: readonly OutgoingMessage[]): Promise<void> {
    for (const message of messages) this.messages.set(addressOf(message.payload), message);
    await this.client.send(messages);
  }

  async setPolicy(topic: string, policy: Partial<TopicPolicy>): Promise<void> {
    const { began, ended } = await this.#during(() => this.#mailbox.operations.setPolicy(topic, policy, NEVER));
    this.policies.push({ topic, policy, began, ended });
  }

  async replayDead(topic: string, seqs: readonly number[]): Promise<void> {
    const which = { seqs, limit: seqs.length };
    const { began, ended } = await this.#during(() => this.#mailbox.operations.replayDead(topic, which, NEVER));
    this.removals.push({ topic, seqs, isReplay: true, began, ended });
  }

  async deleteDead(topic: string, seqs: readonly number[]): Promise<void> {
    const which = { seqs, limit: seqs.length };
    const { began, ended } = await this.#during(() => this.#mailbox.operations.deleteDead(topic, which, NEVER));
    this.removals.push({ topic, seqs, isReplay: false, began, ended });
  }

  /** The oldest dead letters. */
  async dead(topic: string): Promise<number[]> {
    if (!this.#mailbox.operations.topics().some((each) => each.topic === topic)) return [];
    return (await this.#mailbox.operations.deadLetters(topic, 0, 2, NEVER)).dead.map(({ seq }) => seq);
  }

  /** The operations around a call; a call that fails has no end. */
  async #during(call: () => Promise<unknown>): Promise<Span> {
    const began = this.disk.operations;
    const isAnswered = await call().then(
      () => true,
      () => false,
    );
    return { began, ended: isAnswered ? this.disk.operations : Infinity };
  }

  /** Compacts the oldest segment. */
  compact(): Promise<void> {
    return this.#mailbox.compact();
  }
}

/** The calls as they were when the power failed. */
function callsBefore(calls: readonly HistoryCall[], point: number): HistoryCall[] {
  return calls
    .filter(({ began_ms }) => began_ms <= point)
    .map((call) => (call.ended_ms <= point ? call : { ...call, ended_ms: Infinity, result: undefined }));
}

/** Runs a history, and checks every disk that a power cut could leave behind. Returns how many. */
export async function checkEveryCrash(
  topics: readonly string[],
  history: (run: CrashRun) => Promise<void>,
  faults: Faults = {},
): Promise<number> {
  const disk = new CrashFileSystem(new Map(), faults);
  const past = new VirtualSched();
  const run = await past.during(async () => {
    const mailbox = await openMailbox(disk);
    const running = new CrashRun(mailbox, disk, past);
    await history(running);
    await mailbox.close();
    return running;
  });
  const random = randomFrom(7);
  let images = 0;
  for (let point = 0; point <= disk.operations; point += 1) {
    for (const image of disk.imagesAt(point, IMAGES_MAX, random)) {
      images += 1;
      const time = new VirtualSched(past.now_ms() + REBOOT_MS);
      await time.during(() => checkImage(image, point, run, topics, time));
    }
  }
  return images;
}

async function checkImage(
  image: Map<string, Uint8Array>,
  point: number,
  run: CrashRun,
  topics: readonly string[],
  time: VirtualSched,
): Promise<void> {
  const disk = new CrashFileSystem(image);
  let now = AFTER;
  const recorder = new Recorder(() => (now += STEP));
  recorder.calls.push(...callsBefore(run.recorder.calls, point));
  const mailbox = await openMailbox(disk);
  const at = `after operation ${point}`;
  assert.equal(mailbox.problem, undefined, at);
  const { operations } = mailbox;
  checkPolicies(operations, run, point);
  const client = new RecordingClient(recorder, operationsWire(operations));
  await sendAgain(client, recorder.calls, run.messages);
  for (const topic of topics) await drain(operations, client, topic, time);
  const final = await Promise.all(topics.map((topic) => finalTopic(operations, topic, run, point)));
  const violations = violationsOf({
    // Times are not ms, so only the presence of a delay counts.
    calls: recorder.calls.map((call) =>
      'delay_ms' in call && call.delay_ms !== undefined ? { ...call, delay_ms: 0 } : call,
    ),
    topics: final,
    max_deliveries: MAX_DELIVERIES,
    leases_survive: false,
  });
  assert.deepEqual(violations, [], at);
  checkReplays(recorder.calls, final, run, point);
  const ledgers = operations.topics().map(({ topic, ledger }) => ({ topic, ledger }));
  await mailbox.close();
  // A start derives from the disk the same totals that the mailbox had in memory.
  const again = await openMailbox(new CrashFileSystem(disk.files()));
  assert.equal(again.problem, undefined, at);
  assert.deepEqual(
    again.operations.topics().map(({ topic, ledger }) => ({ topic, ledger })),
    ledgers,
    at,
  );
  await again.close();
}

/** Repeats all sends with an idempotency key: an acknowledged one must be a duplicate. */
async function sendAgain(
  client: RecordingClient,
  calls: readonly HistoryCall[],
  messages: ReadonlyMap<string, OutgoingMessage>,
): Promise<void> {
  // The client adds its calls to the same list.
  const keyed = calls.filter((call) => call.kind === 'send' && call.idempotency_key !== undefined);
  for (const call of keyed) if (call.kind === 'send') await client.send([messages.get(call.body)!]);
}

async function drain(
  operations: MailboxOperations,
  client: RecordingClient,
  topic: string,
  time: VirtualSched,
): Promise<void> {
  if (!operations.topics().some((each) => each.topic === topic)) return;
  for (let round = 0; round < DRAIN_ROUNDS_MAX;) {
    const messages = await client.receive(topic, { max: 128 });
    if (messages.length > 0) {
      await client.ack(topic, messages);
      continue;
    }
    const { ready, delayed, leased } = operations.topic(topic).ledger;
    if (ready + delayed + leased === 0) return;
    await time.advance(PATIENCE_MS);
    round += 1;
  }
  assert.fail(`${topic}: messages wait and do not become visible: ${JSON.stringify(operations.topic(topic).ledger)}`);
}

async function finalTopic(
  operations: MailboxOperations,
  topic: string,
  run: CrashRun,
  point: number,
): Promise<FinalTopic> {
  const none = { sent: 0, acked: 0, ready: 0, delayed: 0, leased: 0, dead: 0, gone: 0 };
  if (!operations.topics().some((each) => each.topic === topic)) return { topic, ledger: none, dead: [] };
  const letters: readonly DeadLetterDto[] = (await operations.deadLetters(topic, 0, 128, NEVER)).dead;
  const dead = letters.map(({ seq, attempts }) => ({ seq, attempts, dead_ms: 0 }));
  const begun = run.removals.filter((each) => each.topic === topic && each.began <= point).flatMap(({ seqs }) => seqs);
  const removed = begun.filter((seq) => dead.every((letter) => letter.seq !== seq));
  return { topic, ledger: operations.topic(topic).ledger, dead, removed };
}

/** A replay is atomic: the dead letter is there, or its replay is, never both and never none. */
function checkReplays(calls: readonly HistoryCall[], final: readonly FinalTopic[], run: CrashRun, point: number): void {
  const receipts = calls.flatMap((call) => (call.kind === 'receive' ? (call.result ?? []) : []));
  for (const { topic, seqs, isReplay, began, ended } of run.removals) {
    if (began > point) continue;
    for (const seq of seqs) {
      const isDead = final.some((each) => each.topic === topic && each.dead.some((letter) => letter.seq === seq));
      const id = receipts.find((receipt) => receipt.seq === seq)?.id;
      const isReplayed = receipts.some(({ replay_of }) => replay_of !== undefined && replay_of === id);
      const at = `dead letter ${seq} after operation ${point}`;
      if (isReplay) assert.notEqual(isDead, isReplayed, at);
      if (ended <= point) assert.ok(!isDead, at);
    }
  }
}

/** A topic has the last policy that was answered, or a later one. */
function checkPolicies(operations: MailboxOperations, run: CrashRun, point: number): void {
  for (const [topic, calls] of Map.groupBy(run.policies, (call) => call.topic)) {
    const last = calls.findLastIndex(({ ended }) => ended <= point);
    if (last < 0) continue;
    const { policy } = operations.topic(topic);
    const possible = calls.slice(last).filter(({ began }) => began <= point);
    const isKept = possible.some((call) =>
      Object.entries(call.policy).every(([name, value]) => Reflect.get(policy, name) === value),
    );
    assert.ok(isKept, `the policy of ${topic} after operation ${point}: ${JSON.stringify(policy)}`);
  }
}

/** Reproducible numbers in [0, 1). */
export function randomFrom(seed: number): () => number {
  let state = seed;
  return () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
}
