/** Names behave as a simple model of their rules, across restarts and lost databases. */
import assert from 'node:assert/strict';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { isRonError } from '@ron/kernel';
import { tempDir } from '@ron/testkit';
import { hex } from '../../src/publish/rules.ts';
import { fieldsOf } from '../../src/publish/signed-record.ts';
import { nameSigner, valueOf } from '../../src/publish/testing.ts';
import type { StoredRecord } from '../../src/store/index-store.ts';
import { ALICE, openNode, signal, type NamesNode } from './support.ts';

type Change =
  /** A new record behind a known one (`after` counts back from the newest; beyond the first: seq 1). */
  | { readonly kind: 'publish' | 'adopt'; readonly label: string; readonly after: number; readonly isMove: boolean }
  /** A record that exists already. */
  | { readonly kind: 'publish again' | 'adopt again'; readonly label: string; readonly at: number };
interface Restart {
  readonly kind: 'restart' | 'lose the database';
}

const label = fc.constantFrom('a', 'b/c');
const fresh = fc.record({
  kind: fc.constantFrom('publish' as const, 'adopt' as const),
  label,
  after: fc.nat({ max: 3 }),
  // A move ends the chain of its label.
  isMove: fc.integer({ min: 1, max: 15 }).map((roll) => roll === 15),
});
const again = fc.record({
  kind: fc.constantFrom('publish again' as const, 'adopt again' as const),
  label,
  at: fc.nat({ max: 6 }),
});
const restart = fc.record({ kind: fc.constantFrom('restart' as const, 'lose the database' as const) });
const change: fc.Arbitrary<Change> = fc.oneof({ weight: 2, arbitrary: fresh }, { weight: 1, arbitrary: again });
const command: fc.Arbitrary<Change | Restart> = fc.oneof(
  { weight: 18, arbitrary: change },
  { weight: 1, arbitrary: restart },
);

interface Known {
  current: StoredRecord;
  rival: StoredRecord | undefined;
}
type Logged = { kind: 'name'; record: StoredRecord } | { kind: 'fork'; state: Known };

const same = (left: StoredRecord | undefined, right: StoredRecord | undefined): boolean =>
  (left && hex(left.hash)) === (right && hex(right.hash));

/** The rules once more, without regard to cost. */
class Model {
  readonly names = new Map<string, Known>();
  readonly log: Logged[] = [];
  /** Everything that was current or a rival. */
  past = new Map<string, StoredRecord>();

  publish(record: StoredRecord): 'new' | 'same' | 'conflict' {
    const known = this.names.get(record.label);
    if (same(known?.current, record)) return 'same';
    const { previous } = fieldsOf(record);
    const follows =
      known === undefined
        ? record.seq === 1
        : record.seq === known.current.seq + 1 && previous === hex(known.current.hash);
    if (!follows || (known && fieldsOf(known.current).moved_to !== undefined)) return 'conflict';
    this.log.push({ kind: 'name', record });
    this.#set({ current: record, rival: undefined });
    return 'new';
  }

  adopt(record: StoredRecord): void {
    const known = this.names.get(record.label);
    if (known === undefined) return this.#set({ current: record, rival: undefined });
    const { current, rival } = known;
    if (same(current, record) || same(rival, record)) return;
    if (beats(record, current)) {
      const isOwn = this.log.some((logged) => logged.kind === 'name' && logged.record.label === record.label);
      const unverified = isOwn && record.seq > current.seq + 1 ? (rival ?? current) : undefined;
      this.#adopted({ current: record, rival: differ(record, current) ? current : unverified });
    } else if (rival === undefined) {
      const next = this.#rivalBy(record, current);
      if (next !== undefined) this.#adopted({ current, rival: next });
    } else if (isNext(current, record) && isNext(record, rival)) this.#adopted({ current, rival: undefined });
  }

  #rivalBy(record: StoredRecord, current: StoredRecord): StoredRecord | undefined {
    if (record.seq < current.seq && this.past.has(hex(record.hash))) return undefined;
    if (differ(record, current)) return record;
    const near = (seq: number): StoredRecord[] =>
      [...this.past.values()].filter((each) => each.label === record.label && each.seq === seq);
    const isBroken = (others: StoredRecord[], links: (each: StoredRecord) => boolean): boolean =>
      others.length > 0 && !others.some(links);
    const beside = near(record.seq);
    const [before, after] = [near(record.seq - 1), near(record.seq + 1)];
    const isFork =
      beside.length > 0 ||
      isBroken(before, (each) => isNext(record, each)) ||
      isBroken(after, (each) => isNext(each, record));
    if (!isFork) return undefined;
    if (!isNext(current, record)) return record;
    return [beside, before, after].flatMap((each) => each.toSorted((x, y) => (hex(x.hash) < hex(y.hash) ? -1 : 1)))[0];
  }

  loseDatabase(): void {
    this.names.clear();
    this.past = new Map();
    for (const logged of this.log) {
      if (logged.kind === 'fork') {
        const known = this.names.get(logged.state.current.label);
        const { current } = logged.state;
        if (known === undefined || same(known.current, current) || beats(current, known.current))
          this.#set({ ...logged.state });
      } else this.#set({ current: logged.record, rival: undefined });
    }
  }

  #adopted(next: Known): void {
    if (next.rival !== undefined) this.log.push({ kind: 'fork', state: next });
    this.#set(next);
  }

  #set(next: Known): void {
    const known = this.names.get(next.current.label);
    if (known !== undefined && !same(known.current, next.current)) {
      this.past.set(hex(known.current.hash), known.current);
      if (known.rival !== undefined) this.past.set(hex(known.rival.hash), known.rival);
    }
    this.names.set(next.current.label, next);
  }
}

const isNext = (next: StoredRecord, before: StoredRecord): boolean =>
  next.seq === before.seq + 1 && fieldsOf(next).previous === hex(before.hash);
const isMoved = (record: StoredRecord): boolean => fieldsOf(record).moved_to !== undefined;

function differ(left: StoredRecord, right: StoredRecord): boolean {
  const [low, high] = left.seq < right.seq ? [left, right] : [right, left];
  if (low.seq === high.seq || isMoved(low)) return true;
  return high.seq === low.seq + 1 && fieldsOf(high).previous !== hex(low.hash);
}

function beats(left: StoredRecord, right: StoredRecord): boolean {
  if (isMoved(left) || isMoved(right)) return !isMoved(right);
  return left.seq === right.seq ? hex(left.hash) < hex(right.hash) : left.seq > right.seq;
}

const RUNS = Number(process.env['RON_FUZZ_RUNS'] ?? 30);
/** `max`: by default most histories would be too short for a fork and a record behind it. */
const LENGTH = { minLength: 5, maxLength: 40, size: 'max' } as const;
/** A node records a burst of 60 forks, then one per second: a few runs stay below that. */
const RUNS_PER_NODE = 2;

test('publishing and adopting in any order follows the model', async () => {
  let node: NamesNode | undefined;
  let runs = 0;
  try {
    await fc.assert(
      fc.asyncProperty(fc.array(change, LENGTH), async (commands) => {
        if (runs++ % RUNS_PER_NODE === 0) {
          await node?.[Symbol.asyncDispose]();
          node = await openNode(undefined);
        }
        // Each run has a key of its own, so that runs can share a node.
        const run = new Run(async () => node!);
        for (const each of commands) await run.execute(each);
      }),
      { numRuns: RUNS, endOnFailure: true },
    );
  } finally {
    await node?.[Symbol.asyncDispose]();
  }
});

test('names follow the model across restarts and lost databases', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(command, LENGTH), async (commands) => {
      await using temp = await tempDir();
      await using disk = new NodeOnDisk(temp.path);
      const run = new Run(() => disk.open());
      for (const each of commands) {
        if ('label' in each) await run.execute(each);
        else await run.restart(() => disk.restart(each.kind));
      }
    }),
    { numRuns: Math.ceil(RUNS / 10), endOnFailure: true },
  );
});

/** A node that is stopped and started again in one directory. */
class NodeOnDisk implements AsyncDisposable {
  readonly #dir: string;
  #node: NamesNode | undefined;

  constructor(dir: string) {
    this.#dir = dir;
  }

  async open(): Promise<NamesNode> {
    this.#node ??= await openNode(this.#dir);
    return this.#node;
  }

  /** Returns whether the database was lost. */
  async restart(kind: Restart['kind']): Promise<boolean> {
    // The first command of a history may be a restart.
    await this.open();
    await this[Symbol.asyncDispose]();
    if (kind === 'restart') return false;
    const names = (await readdir(this.#dir)).filter((name) => name.startsWith('index.db'));
    assert.ok(names.length > 0, 'the database has files');
    for (const name of names) await rm(join(this.#dir, name));
    return true;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#node?.[Symbol.asyncDispose]();
    this.#node = undefined;
  }
}

class Run {
  readonly #open: () => Promise<NamesNode>;
  readonly #model = new Model();
  readonly #signer = nameSigner();
  readonly #records = new Map<string, StoredRecord[]>();
  #isTrusted = false;

  constructor(open: () => Promise<NamesNode>) {
    this.#open = open;
  }

  async execute(each: Change): Promise<void> {
    const node = await this.#opened();
    const record = 'after' in each ? this.#newRecord(each) : this.#records.get(each.label)?.at(-1 - each.at);
    if (record === undefined) return;
    if (each.kind.startsWith('publish')) await this.#publish(node, record);
    else await this.#adopt(node, record);
    await this.#compare();
  }

  async restart(perform: () => Promise<boolean>): Promise<void> {
    if (await perform()) this.#model.loseDatabase();
    await this.#compare();
  }

  async #opened(): Promise<NamesNode> {
    const node = await this.#open();
    if (!this.#isTrusted) await node.names.setTrust({ prefix: '', key: this.#signer.key }, ALICE, signal);
    this.#isTrusted = true;
    return node;
  }

  #newRecord({ label: name, after, isMove }: Extract<Change, { kind: 'publish' | 'adopt' }>): StoredRecord {
    const known = this.#records.get(name) ?? [];
    const last = after === 0 ? this.#model.names.get(name)?.current : known.at(-after);
    const moved = isMove ? { value: undefined, moved_to: 'ee'.repeat(32) } : {};
    const record = this.#signer.record(name, { after: last, ...moved });
    this.#records.set(name, [...known, record]);
    return record;
  }

  async #publish(node: NamesNode, record: StoredRecord): Promise<void> {
    const expected = this.#model.publish(record);
    const outcome = await node.publish(record).then(
      ({ isNew }) => (isNew ? 'new' : 'same'),
      (error: unknown) => (isRonError(error, 'conflict') ? 'conflict' : Promise.reject(error as Error)),
    );
    assert.equal(outcome, expected);
  }

  async #adopt(node: NamesNode, record: StoredRecord): Promise<void> {
    this.#model.adopt(record);
    const found = await node.names.adopt(record.key, record.label, [valueOf(record)], signal);
    const { current, rival } = this.#model.names.get(record.label)!;
    assert.ok(same(found, current) && same(found?.rival, rival), 'the answer equals the model');
    const accepted = await node.names.accepts(record.key, record.label, valueOf(record));
    const isAccepted = record.seq >= current.seq || same(record, current);
    assert.equal(accepted !== undefined, isAccepted, 'the validator refuses a lower seq');
  }

  async #compare(): Promise<void> {
    const { store } = await this.#opened();
    for (const name of ['a', 'b/c']) {
      const stored = await store.name(this.#signer.key, name);
      const known = this.#model.names.get(name);
      assert.ok(same(stored, known?.current), `the current record of ${name}: ${stored?.seq} ${known?.current.seq}`);
      assert.ok(same(stored?.rival, known?.rival), `the rival of ${name}`);
    }
  }
}
