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

type Command =
  /** A new record behind a known one (`after` counts back from the newest; beyond the first: seq 1). */
  | { readonly kind: 'publish' | 'adopt'; readonly label: string; readonly after: number; readonly isMove: boolean }
  /** A record that exists already. */
  | { readonly kind: 'publish again' | 'adopt again'; readonly label: string; readonly at: number }
  | { readonly kind: 'restart' | 'lose the database' };

const label = fc.constantFrom('a', 'b/c');
const fresh = fc.record({
  kind: fc.constantFrom('publish' as const, 'adopt' as const),
  label,
  after: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, fc.nat({ max: 6 })),
  isMove: fc.nat({ max: 15 }).map((roll) => roll === 0),
});
const again = fc.record({
  kind: fc.constantFrom('publish again' as const, 'adopt again' as const),
  label,
  at: fc.nat({ max: 6 }),
});
const restart = fc.record({ kind: fc.constantFrom('restart' as const, 'lose the database' as const) });
const command: fc.Arbitrary<Command> = fc.oneof(
  { weight: 12, arbitrary: fresh },
  { weight: 6, arbitrary: again },
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
  past = new Set<string>();

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
    const [higher, lower] = beats(record, current) ? [record, current] : [current, record];
    const isFork =
      higher.seq === lower.seq || (higher.seq === lower.seq + 1 && fieldsOf(higher).previous !== hex(lower.hash));
    if (higher === record) this.#adopted({ current: record, rival: isFork ? current : undefined });
    else if (isFork && rival === undefined && (record.seq === current.seq || !this.past.has(hex(record.hash))))
      this.#adopted({ current, rival: record });
  }

  loseDatabase(): void {
    this.names.clear();
    this.past = new Set();
    for (const logged of this.log) {
      if (logged.kind === 'fork') {
        const known = this.names.get(logged.state.current.label);
        if (known === undefined || known.current.seq <= logged.state.current.seq) this.#set({ ...logged.state });
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
      this.past.add(hex(known.current.hash));
      if (known.rival !== undefined) this.past.add(hex(known.rival.hash));
    }
    this.names.set(next.current.label, next);
  }
}

function beats(left: StoredRecord, right: StoredRecord): boolean {
  return left.seq === right.seq ? hex(left.hash) < hex(right.hash) : left.seq > right.seq;
}

test('publishing and adopting in any order follows the model', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(command, { minLength: 5, maxLength: 40 }), async (commands) => {
      await using temp = await tempDir();
      await using run = new Run(temp.path);
      for (const each of commands) await run.execute(each);
    }),
    { numRuns: Number(process.env['RON_FUZZ_RUNS'] ?? 4) },
  );
});

class Run implements AsyncDisposable {
  readonly #dir: string;
  readonly #model = new Model();
  readonly #signer = nameSigner();
  readonly #records = new Map<string, StoredRecord[]>();
  #node: NamesNode | undefined;

  constructor(dir: string) {
    this.#dir = dir;
  }

  async execute(each: Command): Promise<void> {
    const node = await this.#opened();
    if (!('label' in each)) {
      await this[Symbol.asyncDispose]();
      if (each.kind === 'lose the database') await this.#loseDatabase();
    } else {
      const record = 'after' in each ? this.#newRecord(each) : this.#records.get(each.label)?.at(-1 - each.at);
      if (record === undefined) return;
      if (each.kind.startsWith('publish')) await this.#publish(node, record);
      else await this.#adopt(node, record);
    }
    await this.#compare();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#node?.[Symbol.asyncDispose]();
    this.#node = undefined;
  }

  async #opened(): Promise<NamesNode> {
    if (this.#node !== undefined) return this.#node;
    this.#node = await openNode(this.#dir);
    await this.#node.names.setTrust({ prefix: '', key: this.#signer.key }, ALICE, signal);
    return this.#node;
  }

  #newRecord({ label: name, after, isMove }: Extract<Command, { kind: 'publish' | 'adopt' }>): StoredRecord {
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
    assert.equal(accepted !== undefined, record.seq >= current.seq, 'the validator refuses a lower seq');
  }

  async #loseDatabase(): Promise<void> {
    for (const name of await readdir(this.#dir)) {
      if (name.startsWith('index.db')) await rm(join(this.#dir, name));
    }
    this.#model.loseDatabase();
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
