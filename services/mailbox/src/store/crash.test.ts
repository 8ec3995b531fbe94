/**
 * Every crash point of histories with rotations and compactions: [mailbox I-1] [mailbox I-4] [mailbox I-8] messages that were
 * acknowledged survive, settled ones do not return, remembered keys stay, and the ledger balances.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import { CrashFileSystem } from '@ron/log/testing';
import { Compactor } from './compaction/compactor.ts';
import type { MailboxLog } from './mailbox-log.ts';
import { acked, dead, messageOf, openNaive, removed } from './testing/make.ts';
import type { NaiveState } from './testing/naive-state.ts';

const SEGMENT_BYTES = 2048;
const IMAGES_MAX = 40;

/** An answer of the log, and the operations of the disk that were done when it came. */
interface Answer {
  readonly kind: 'sent' | 'settling' | 'settled' | 'key';
  readonly seq: number;
  readonly at: number;
}

class History {
  readonly disk: CrashFileSystem;
  readonly log: MailboxLog;
  readonly state: NaiveState;
  readonly answers: Answer[] = [];
  readonly #compactor: Compactor;

  private constructor(disk: CrashFileSystem, log: MailboxLog, state: NaiveState) {
    this.disk = disk;
    this.log = log;
    this.state = state;
    this.#compactor = new Compactor({ log, live: state, onEvent: ({ kind }) => assert.equal(kind, 'segment removed') });
  }

  static async begin(wrap: (disk: CrashFileSystem) => FileSystem = (disk) => disk): Promise<History> {
    const disk = new CrashFileSystem();
    const { log, state } = await openNaive(wrap(disk), { segment_bytes: SEGMENT_BYTES });
    return new History(disk, log, state);
  }

  #note(kind: Answer['kind'], seqs: readonly number[]): void {
    for (const seq of seqs) this.answers.push({ kind, seq, at: this.disk.operations });
  }

  async send(count: number, idempotency_key?: string): Promise<readonly number[]> {
    const some = idempotency_key === undefined ? {} : { idempotency_key };
    const messages = Array.from({ length: count }, (_, key) => messageOf('a', key + 1, 150, some));
    const seqs = await this.log.appendMessages(messages, NEVER);
    this.#note('sent', seqs);
    if (idempotency_key !== undefined) this.#note('key', seqs);
    return seqs;
  }

  async ack(...seqs: number[]): Promise<void> {
    for (const seq of seqs) this.state.settling.add(seq);
    this.#note('settling', seqs);
    await this.log.appendSettled(
      seqs.map((seq) => acked(seq, 'a')),
      NEVER,
    );
    this.#note('settled', seqs);
  }

  async kill(seq: number): Promise<void> {
    await this.log.appendSettled([dead(seq, 'a', 'why')], NEVER);
  }

  async lease(seq: number): Promise<void> {
    const lease = { seq, delivery: 1, attempts: 1, nonce: 1, until_ms: 1, visibility_ms: 1 };
    this.state.onLeased([lease]);
    await this.log.appendLeased([lease], NEVER);
  }

  async replay(seq: number): Promise<void> {
    this.#note('settling', [seq]);
    const seqs = await this.log.appendReplayed([messageOf('a', 9)], [removed(seq, 'a')], NEVER);
    this.#note('settled', [seq]);
    this.#note('sent', seqs);
  }

  compact(): Promise<boolean> {
    return this.#compactor.compactOldest(NEVER);
  }

  /** Opens every disk that a crash could leave, twice, with work in between. */
  async check(): Promise<number> {
    await this.log.close();
    let images = 0;
    for (let point = 0; point <= this.disk.operations; point++) {
      for (const image of this.disk.imagesAt(point, IMAGES_MAX, random)) {
        images += 1;
        await this.#checkImage(image, point);
      }
    }
    return images;
  }

  async #checkImage(image: Map<string, Uint8Array>, point: number): Promise<void> {
    const disk = new CrashFileSystem(image);
    for (let start = 0; start < 2; start++) {
      const { log, state } = await openNaive(disk, { segment_bytes: SEGMENT_BYTES });
      assert.equal(log.problem?.text, undefined, `after operation ${point}, start ${start}`);
      this.#checkState(state, point);
      for (const { place } of state.messages.values()) assert.ok(await log.reader.read(place));
      await log.appendMessages([messageOf('b', 1)], NEVER);
      if (start === 0) await new Compactor({ log, live: state, onEvent: () => undefined }).compactOldest(NEVER);
      assert.equal(log.check(), undefined);
      await log.close();
    }
  }

  #checkState({ messages, seen }: NaiveState, point: number): void {
    const settling = new Set(
      this.answers.filter((each) => each.kind === 'settling' && each.at <= point).map(({ seq }) => seq),
    );
    const keys = new Set([...seen.values()].map(({ seq }) => seq));
    for (const { kind, seq, at } of this.answers) {
      if (at > point) continue;
      const isHeld = messages.has(seq);
      if (kind === 'sent') assert.ok(isHeld || settling.has(seq), `message ${seq} is lost after operation ${point}`);
      if (kind === 'settled') assert.ok(!isHeld, `message ${seq} came back after operation ${point}`);
      if (kind === 'key') assert.ok(keys.has(seq), `the key of message ${seq} is lost after operation ${point}`);
    }
  }
}

let random_state = 7;
const random = (): number => (random_state = (Math.imul(random_state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;

test('no crash point of a history with rotations, dead letters and replays breaks a promise', async () => {
  const history = await History.begin();
  const [a, b, c] = await history.send(3);
  await history.lease(a!);
  await history.ack(a!);
  await history.kill(b!);
  const [d] = await history.send(4);
  await history.replay(b!);
  await history.lease(c!);
  await history.lease(d!);
  await Promise.all([history.ack(c!, d!), history.send(2), history.lease(a!)]);
  assert.ok((await history.check()) > 60);
});

test('no crash point of compactions beside sends and acks breaks a promise', async () => {
  const history = await History.begin();
  const [a, b, c, d] = await history.send(4);
  const [k] = await history.send(1, 'key');
  await history.send(4);
  await history.kill(b!);
  await history.lease(c!);
  await history.ack(a!, k!);
  await Promise.all([history.compact(), history.ack(d!), history.send(1)]);
  await history.send(5);
  await history.compact();
  await history.ack(c!);
  await history.compact();
  await Promise.all([history.replay(b!), history.compact()]);
  assert.ok((await history.check()) > 100);
});

test('the histories detect a segment that is removed before its moves are durable', async () => {
  const lying = (disk: CrashFileSystem): FileSystem => ({
    create: async (path) => ({ ...(await disk.create(path)), sync: async () => undefined }),
    open: (path, access) => disk.open(path, access),
    list: (dir) => disk.list(dir),
    makeDir: (dir) => disk.makeDir(dir),
    rename: (from, to) => disk.rename(from, to),
    remove: (path) => disk.remove(path),
    syncDir: (dir) => disk.syncDir(dir),
  });
  const history = await History.begin(lying);
  await history.send(2);
  await history.compact();
  await assert.rejects(history.check(), /is lost after operation/);
});
