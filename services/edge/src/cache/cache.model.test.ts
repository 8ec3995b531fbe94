/** [edge I-2] The cache under every schedule of evictions, purges, fills and reads. */
import { test } from 'node:test';
import { EvictingStore } from '@ron/cas';
import { assertCaught, assertHolds, mutant, type Build } from '@ron/explorer';
import { evictionAgainstFill, purgeAgainstFill, removalAgainstRead, type Parts, type Size } from './cache.model.ts';
import { TieredCache } from './tiered-cache.ts';

const PARTS: Parts = { TieredCache, EvictingStore };

type Make = (parts: Parts) => Build;
const readDuring =
  (how: 'evict' | 'purge', size: Size): Make =>
  (parts) =>
    removalAgainstRead(parts, how, size);

const MODELS: readonly [name: string, model: Make][] = [
  ['evict against read of a small asset', readDuring('evict', 'small')],
  ['evict against read of a streamed asset', readDuring('evict', 'streamed')],
  ['purge against read of a small asset', readDuring('purge', 'small')],
  ['purge against read of a larger asset', readDuring('purge', 'whole')],
  ['purge against read of a streamed asset', readDuring('purge', 'streamed')],
  ['evict against fill of the same bytes', evictionAgainstFill],
  ['purge against fill', purgeAgainstFill],
];

for (const [name, model] of MODELS) {
  test(`${name}: holds in every schedule`, async (t) => {
    const { schedules } = await assertHolds(model(PARTS), { name });
    t.diagnostic(`${schedules} schedules`);
  });
}

const CAS = '../../../../packages/cas/src/eviction/';
const STORE = `${CAS}evicting-store.ts`;
const CACHE = './tiered-cache.ts';

const MUTANTS = [
  {
    bug: 'an object is removed under its reader',
    file: `${CAS}named-objects.ts`,
    entry: STORE,
    find: 'if (!this.#isFree(object)) continue;',
    replace: '',
    model: readDuring('evict', 'streamed'),
    caught: /missing/,
  },
  {
    bug: 'a read puts an asset into memory that was purged meanwhile',
    file: CACHE,
    find: 'if (found!.isCurrent()) this.#remember(meta, source);',
    replace: 'this.#remember(meta, source);',
    model: readDuring('purge', 'whole'),
    caught: /in memory/,
  },
  {
    bug: 'an object whose removal is being written counts as stored',
    file: STORE,
    find: 'with: [record], isLeaving: this.#isLeaving }',
    replace: 'with: [record] }',
    model: evictionAgainstFill,
    caught: /were removed with another one/,
  },
  {
    bug: 'the name of a new fill does not count as a user of its object',
    file: STORE,
    find: 'const object = this.#named.claim(address, size);\n    this.#reserved_bytes',
    replace:
      'const object = this.#named.claim(address, size);\n    this.#named.release(object);\n    this.#reserved_bytes',
    model: evictionAgainstFill,
    caught: /were removed with another one/,
  },
  {
    bug: 'a fill is kept in memory although a purge came while its note was written',
    file: CACHE,
    find: "if (keep.isVoid) return 'purged';\n      const isInRam",
    replace: 'const isInRam',
    model: purgeAgainstFill,
    caught: /in memory/,
  },
  {
    bug: 'a note is kept although a purge came while it was written',
    file: STORE,
    find: 'if (keep.isVoid) return false;\n      const wasSet',
    replace: 'const wasSet',
    model: purgeAgainstFill,
    caught: /on disk/,
  },
  {
    bug: 'a fill from before a purge is kept',
    file: CACHE,
    find: 'isVoid: generation !== this.generation',
    replace: 'isVoid: false',
    model: purgeAgainstFill,
    caught: /in memory/,
  },
] as const;

const urlOf = (path: string): string => new URL(path, import.meta.url).href;

for (const { bug, file, find, replace, model, caught, ...more } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const init = 'entry' in more ? { entry: urlOf(more.entry) } : {};
    const broken = await mutant<Partial<Parts>>(urlOf(file), find, replace, init);
    await assertCaught(model({ ...PARTS, ...broken }), { name: bug }, caught);
  });
}
