import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { assertCaught, assertHoldsWithin, explore, mutant, type Build } from '@ron/explorer';
import {
  compactionAgainstRead,
  expiryAgainst,
  leaseAgainstRewrite,
  leaseAgainstSweep,
  type Engine,
} from './compaction.model.ts';
import { Compactor } from './compactor.ts';
import { LocalVolume } from '../volume/local-volume.ts';
import { ObjectStore } from '../objects/object-store.ts';

/** The models do not depend on time. */
const TIMELESS = { lags: 0 };
/**
 * One completion in a turn of the event loop, and no delayed wake-ups. The smallest of these models has 13,284 such
 * schedules, each on a real engine, so only the first of them are explored.
 */
const BOUNDED = { lags: 0, turn_max: 1, delayed: false, schedules_max: 3000 };

const ENGINE: Engine = { LocalVolume, ObjectStore, Compactor };

/** Explores the first schedules only, and reports that the result is not complete. */
async function holdsAtFirst(t: TestContext, name: string, build: Build): Promise<void> {
  const result = await explore(build, BOUNDED);
  assert.equal(result.failure, undefined, `${name}: ${result.failure?.seed}`);
  t.diagnostic(`${name}: the first ${result.schedules} schedules, bounded by ${result.bounds.join(', ')}`);
}

test('a reader gets every byte of a live object while its segment is removed', async (t) => {
  for (const what of ['a small object', 'chunks'] as const) {
    await holdsAtFirst(t, what, compactionAgainstRead(ENGINE, what));
  }
});

test('a chunk that a writer relies on is never reclaimed', async (t) => {
  await holdsAtFirst(t, 'lease against sweep', leaseAgainstSweep(ENGINE));
  await holdsAtFirst(t, 'lease against rewrite', leaseAgainstRewrite(ENGINE));
});

test('an object that is put again or pinned while it expires stays', async (t) => {
  for (const what of ['put', 'pin'] as const) {
    await assertHoldsWithin(t, expiryAgainst(ENGINE, what), { name: `expiry against ${what}`, ...TIMELESS });
  }
});

const urlOf = (path: string): string => import.meta.resolve(path);
const LOG = ['@ron/log', '../../../log/src/segments/segment-log.ts'].map(urlOf);
const VOLUME = [
  '../volume/local-volume.ts',
  './rewrite.ts',
  '../index/open-index.ts',
  '../index/place-index.ts',
  '../index/record-places.ts',
].map(urlOf);
const STORE = ['../objects/object-store.ts', '../objects/object-writer.ts', '../objects/leases.ts'].map(urlOf);

interface Mutation {
  readonly bug: string;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  /** The module of the engine that is broken by it. */
  readonly entry: '../volume/local-volume.ts' | '../objects/object-store.ts' | './compactor.ts';
  readonly model: (engine: Engine) => Build;
  readonly caught: RegExp;
}

const MUTATIONS: readonly Mutation[] = [
  {
    bug: 'a segment is removed under its readers',
    file: '../../../log/src/segments/segment-files.ts',
    find: 'await freed.promise;',
    replace: '',
    entry: '../volume/local-volume.ts',
    model: (engine) => compactionAgainstRead(engine, 'chunks'),
    caught: /EBADF/,
  },
  {
    bug: 'a segment is removed before its records have moved',
    file: './rewrite.ts',
    find: 'await this.#moveAll();',
    replace: '',
    entry: '../volume/local-volume.ts',
    model: (engine) => compactionAgainstRead(engine, 'a small object'),
    caught: /taken for a damaged one|not where it should be/,
  },
  {
    bug: 'the index does not follow a moved record',
    file: '../index/place-index.ts',
    find: 'place.seq >= rival.seq',
    replace: 'place.seq > rival.seq',
    entry: '../volume/local-volume.ts',
    model: (engine) => compactionAgainstRead(engine, 'a small object'),
    caught: /taken for a damaged one/,
  },
  {
    bug: 'a lease that is released during a sweep is forgotten',
    file: '../objects/leases.ts',
    find: 'decrement(this.#held, key);\n    this.#released?.add(idOfKey(key));',
    replace: 'decrement(this.#held, key);',
    entry: '../objects/object-store.ts',
    model: leaseAgainstSweep,
    caught: /missing|is not/,
  },
  {
    bug: 'a sweep ignores current leases',
    file: '../objects/leases.ts',
    find: '!this.isHeld(chunkKey(id)) && ',
    replace: '',
    entry: '../objects/object-store.ts',
    model: leaseAgainstSweep,
    caught: /missing|is not|durable/,
  },
  {
    bug: 'a rewrite does not decide and drop in one step',
    file: './rewrite.ts',
    find: "this.#init.index.remove('content', id);",
    replace: "queueMicrotask(() => void this.#init.pace(0).then(() => this.#init.index.remove('content', id)));",
    entry: '../volume/local-volume.ts',
    model: leaseAgainstRewrite,
    caught: /a leased chunk was reclaimed/,
  },
  {
    bug: 'a writer relies on a chunk without a lease',
    file: '../objects/object-writer.ts',
    find: 'leases.take(key);\n    this.#leased.push(key);\n    if (this.#unsynced.has(',
    replace:
      "if (volume.isDurable('content', record.id)) return;\n    leases.take(key);\n    this.#leased.push(key);\n    if (this.#unsynced.has(",
    entry: '../objects/object-store.ts',
    model: leaseAgainstSweep,
    caught: /missing|is not|durable/,
  },
  {
    bug: 'leases are remembered only after the mark phase',
    file: './compactor.ts',
    find: 'const needed = await this.#mark(pages, guard, signal);',
    replace: 'leases.endSweep(); const needed = await this.#mark(pages, guard, signal); leases.beginSweep();',
    entry: './compactor.ts',
    model: leaseAgainstSweep,
    caught: /missing|is not|durable/,
  },
  {
    bug: 'a writer that finds its object stored does not lease it',
    file: '../objects/object-store.ts',
    find: ' || watch.wasTaken',
    replace: '',
    entry: '../objects/object-store.ts',
    model: (engine) => expiryAgainst(engine, 'put'),
    caught: /the put was acknowledged/,
  },
  {
    bug: 'an object is not rewritten although its lease is about to expire',
    file: '../objects/put-object.ts',
    find: ' && !isRenewed',
    replace: '',
    entry: '../objects/object-store.ts',
    model: (engine) => expiryAgainst(engine, 'put'),
    caught: /the put was acknowledged/,
  },
  {
    bug: 'a pin does not check whether the object was removed before it',
    file: '../objects/object-store.ts',
    find: 'await this.volume.put([{ type, id, payload: EMPTY }], signal);\n      this.#requireHere(address);',
    replace: 'await this.volume.put([{ type, id, payload: EMPTY }], signal);',
    entry: '../objects/object-store.ts',
    model: (engine) => expiryAgainst(engine, 'pin'),
    caught: /the pin was acknowledged/,
  },
];

for (const { bug, file, find, replace, entry, model, caught } of MUTATIONS) {
  test(`caught: ${bug}`, async () => {
    const through = entry === '../volume/local-volume.ts' ? [...VOLUME, ...LOG] : STORE;
    const broken = await mutant<Partial<Engine>>(urlOf(file), find, replace, { entry: urlOf(entry), through });
    await assertCaught(model({ ...ENGINE, ...broken }), BOUNDED, caught);
  });
}
