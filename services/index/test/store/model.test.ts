/** Random histories of the database against a model in memory. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { isRonError } from '@ron/kernel';
import { supersedes } from '../../src/store/record-order.ts';
import type { LogChange, StoredRecord } from '../../src/store/index-store.ts';
import type { SqliteStore } from '../../src/store/sqlite-store.ts';
import { addressOf, empty, NOW_MS, openStore, position, providerKeyOf, recordOf } from './support.ts';

const QUOTAS = { providers_max: 3, providers_per_subject: 2, names_seen: 1000 };
const LABELS = ['a', 'a/b'];
const SUBJECTS = ['s', 't'];

interface ModelName {
  current: StoredRecord;
  rival: StoredRecord | undefined;
  isOwn: boolean;
}

/** The rules of names, objects and entries, as simply as possible. */
class Model {
  readonly names = new Map<string, ModelName>();
  readonly objects = new Map<string, string>();
  readonly entries = new Map<string, { subject: string; expires_ms: number }>();
  readonly trust = new Map<string, string>();

  publish(record: StoredRecord): void {
    const known = this.names.get(record.label);
    if (known === undefined)
      return void this.names.set(record.label, { current: record, rival: undefined, isOwn: true });
    known.isOwn = true;
    const { current } = known;
    if (record.seq < current.seq || isSame(record, current)) return;
    if (record.seq > current.seq) Object.assign(known, { current: record, rival: undefined });
    else if (supersedes(record, current)) Object.assign(known, { current: record, rival: current });
    else known.rival = record;
  }

  swap(record: StoredRecord, isExpected: boolean): boolean {
    const known = this.names.get(record.label);
    const isLower = known !== undefined && supersedes(known.current, record);
    if (!isExpected || isLower) return false;
    this.names.set(record.label, { current: record, rival: undefined, isOwn: known?.isOwn ?? false });
    return true;
  }

  put(key: string, subject: string, expires_ms: number): boolean {
    const known = this.entries.get(key);
    if (known !== undefined) {
      known.expires_ms = expires_ms;
      return true;
    }
    const fits = (): boolean =>
      this.entries.size < QUOTAS.providers_max &&
      [...this.entries.values()].filter((entry) => entry.subject === subject).length < QUOTAS.providers_per_subject;
    if (!fits()) {
      const expired = [...this.entries].filter(([, entry]) => entry.expires_ms <= NOW_MS);
      const [kept, size] = [new Map(this.entries), this.entries.size];
      for (const [each] of expired) this.entries.delete(each);
      if (!fits()) {
        for (const [each, entry] of kept) this.entries.set(each, entry);
        assert.equal(this.entries.size, size);
        return false;
      }
    }
    this.entries.set(key, { subject, expires_ms });
    return true;
  }
}

const isSame = (left: StoredRecord, right: StoredRecord): boolean => Buffer.compare(left.hash, right.hash) === 0;

const label = fc.constantFrom(...LABELS);
const seq = fc.integer({ min: 1, max: 3 });
const salt = fc.constantFrom('', 'x');
const subject = fc.constantFrom(...SUBJECTS);
const number = fc.integer({ min: 0, max: 5 });
const step = fc.oneof(
  fc.record({ kind: fc.constant('publish' as const), label, seq, salt }),
  fc.record({
    kind: fc.constant('swap' as const),
    label,
    seq,
    salt,
    isExpected: fc.boolean(),
    isTrusted: fc.boolean(),
  }),
  fc.record({ kind: fc.constant('trust' as const), prefix: label, isSet: fc.boolean() }),
  fc.record({ kind: fc.constant('reset' as const) }),
  fc.record({ kind: fc.constant('announce' as const), subject, add: fc.array(number), remove: fc.array(number) }),
  fc.record({ kind: fc.constant('put' as const), number, peer: subject, subject, isExpired: fc.boolean() }),
  fc.record({ kind: fc.constant('delete' as const), number, peer: subject }),
  fc.record({ kind: fc.constant('purge' as const) }),
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

class Run {
  readonly #store: SqliteStore;
  readonly #model = new Model();
  #size = 0;
  readonly #key: string;

  constructor(store: SqliteStore, key: string) {
    this.#store = store;
    this.#key = key;
  }

  async take(given: Step): Promise<void> {
    const [store, model] = [this.#store, this.#model];
    switch (given.kind) {
      case 'publish': {
        const record = recordOf(given.label, given.seq, { key: this.#key, salt: given.salt });
        await this.#apply({ kind: 'name', record });
        return model.publish(record);
      }
      case 'swap': {
        const record = recordOf(given.label, given.seq, { key: this.#key, salt: given.salt });
        const current = model.names.get(given.label)?.current.hash;
        const replaces = given.isExpected ? current : new Uint8Array(32);
        const isDone = await store.saveSeen(record, undefined, { isTrusted: given.isTrusted, replaces });
        return assert.equal(isDone, model.swap(record, given.isExpected));
      }
      case 'trust': {
        const key = given.isSet ? this.#key : undefined;
        await this.#apply({ kind: 'trust', prefix: given.prefix, key });
        if (key === undefined) model.trust.delete(given.prefix);
        else model.trust.set(given.prefix, key);
        return;
      }
      case 'reset':
        await store.resetLog();
        this.#size = 0;
        for (const name of model.names.values()) name.isOwn = false;
        return model.trust.clear();
      case 'announce':
        return await this.#announce(given);
      case 'put': {
        const key = providerKeyOf(`${given.number}`, given.peer);
        const expires_ms = given.isExpired ? NOW_MS : NOW_MS + 10;
        const init = { subject: given.subject, expires_ms, now_ms: NOW_MS - 1 };
        const outcome = await store.dhtPut(key, Uint8Array.of(1), init).then(() => true, refused);
        return assert.equal(outcome, this.#putInModel(key, given.subject, expires_ms));
      }
      case 'delete': {
        const key = providerKeyOf(`${given.number}`, given.peer);
        await store.dhtDelete(key);
        return void model.entries.delete(key);
      }
      case 'purge': {
        const expired = [...model.entries].filter(([, { expires_ms }]) => expires_ms <= NOW_MS);
        assert.equal(await store.purgeExpired(NOW_MS, 100), expired.length);
        for (const [key] of expired) model.entries.delete(key);
      }
    }
  }

  async check(): Promise<void> {
    const [store, model] = [this.#store, this.#model];
    for (const each of LABELS) {
      const found = await store.name(this.#key, each);
      const known = model.names.get(each);
      const wanted = known && { ...known.current, rival: known.rival, isOwn: known.isOwn, dropped: 0 };
      assert.deepEqual(found, wanted);
    }
    const own = [...model.names].filter(([, { isOwn }]) => isOwn).map(([each]) => each);
    assert.equal(await store.countNames(this.#key), own.length);
    assert.deepEqual(
      (await store.names('', undefined, 99)).map((name) => name.label),
      own.toSorted(),
    );
    assert.equal((await store.trust()).length, model.trust.size);
    assert.equal(await store.countObjects(), model.objects.size);
    const entries = await store.dhtQuery('/', { now_ms: 0, limit: 99 });
    assert.deepEqual(entries.map(({ key }) => key).toSorted(), [...model.entries.keys()].toSorted());
  }

  async #apply(change: LogChange): Promise<void> {
    this.#size += 1;
    await this.#store.apply([change], position(this.#size));
  }

  async #announce({ subject: by, add, remove }: Extract<Step, { kind: 'announce' }>): Promise<void> {
    const { objects } = this.#model;
    const entries = add.map((at) => ({ address: addressOf(`o${at}`), size: at, media_type: 'text/plain' }));
    const after = new Map(objects);
    for (const at of remove) after.delete(addressOf(`o${at}`));
    for (const { address } of entries) if (!after.has(address)) after.set(address, by);
    const isAdding = entries.some(
      ({ address }) => !objects.has(address) || remove.some((at) => addressOf(`o${at}`) === address),
    );
    const withdraw = remove.map((at) => addressOf(`o${at}`));
    const isDone = await this.#store.announce(by, entries, withdraw, NOW_MS).then(() => true, refused);
    assert.equal(isDone, !isAdding || after.size <= QUOTAS.providers_max);
    if (!isDone) return;
    objects.clear();
    for (const [address, owner] of after) objects.set(address, owner);
  }

  #putInModel(key: string, by: string, expires_ms: number): boolean {
    // Nothing is expired one millisecond before NOW_MS.
    const kept = new Map([...this.#model.entries].map(([each, entry]) => [each, entry.expires_ms]));
    for (const entry of this.#model.entries.values()) entry.expires_ms = Math.max(entry.expires_ms, NOW_MS + 1);
    const isDone = this.#model.put(key, by, expires_ms);
    for (const [each, entry] of this.#model.entries) entry.expires_ms = each === key ? expires_ms : kept.get(each)!;
    return isDone;
  }
}

function refused(error: unknown): false {
  assert.ok(isRonError(error, 'storage_full') && error.reason === 'quota', String(error));
  return false;
}

test('the database agrees with a model after any history', { timeout: 120_000 }, async () => {
  // In memory: the same code, without files.
  await using store = await openStore(undefined, { quotas: () => QUOTAS });
  let runs = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 60, size: 'max' }), async (steps) => {
      await empty(store);
      const run = new Run(store, (runs++).toString(16).padStart(64, '0'));
      for (const each of steps) await run.take(each);
      await run.check();
    }),
    { numRuns: 200 },
  );
});
