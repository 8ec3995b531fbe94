/**
 * Four volumes lose power together, and some of their disks stay lost. After every crash point of small histories, in
 * possible states of the disks, acknowledged objects are whole, removed objects are gone, and maintenance restores the
 * redundancy for the next loss. RON_LONG=1 tries every choice of lost disks, more disk states and more placements.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { mutant } from '@ron/explorer';
import {
  checkEveryCrash,
  CHUNK,
  ONE,
  PARTS,
  SEEDS,
  TWO,
  type Parts,
  type Shape,
  type Step,
} from './power-loss-history.ts';

const WRITES: readonly Step[] = [
  (history) => history.put(100, 1),
  (history) => history.put(2 * CHUNK + 10, 2),
  (history) => Promise.all([history.put(300, 3), history.put(CHUNK + 5, 4)]).then(() => undefined),
  (history) => history.remove(100, 1),
  (history) => history.put(100, 1),
];
const STRIPES: readonly Step[] = [
  (history) => history.put(4 * CHUNK, 5),
  (history) => history.put(3 * CHUNK, 6),
  (history) => history.maintenance.stripe(),
  (history) => history.maintenance.compact(),
  (history) => history.put(2 * CHUNK, 7),
  (history) => history.remove(4 * CHUNK, 5),
  (history) => history.maintenance.stripe(),
  (history) => history.maintenance.compact(),
];
const LOSS: readonly Step[] = [
  (history) => history.put(4 * CHUNK, 8),
  (history) => history.put(50, 9),
  (history) => history.maintenance.stripe(),
  (history) => history.lose('b'),
  (history) => history.maintenance.compact(),
  (history) => history.maintenance.repair(),
  (history) => history.maintenance.compact(),
];

/** Copies are reclaimed without a repair pass that verifies the stripes first. */
const UNCHECKED: readonly Step[] = [
  (history) => history.put(4 * CHUNK, 5),
  (history) => history.maintenance.makeStripes(),
  (history) => history.maintenance.compact(),
];

const HISTORIES = { writes: WRITES, 'making stripes': STRIPES, repairs: LOSS, compaction: UNCHECKED };

for (const [name, shape] of Object.entries({ 'one disk is': ONE, 'two disks are': TWO })) {
  for (const [what, steps] of Object.entries(HISTORIES)) {
    test(`no object is lost when the power fails during ${what} and ${name} lost`, async (t) => {
      for (const seed of SEEDS) {
        const checks = await checkEveryCrash(steps, shape, PARTS, seed);
        t.diagnostic(`${checks} disk states were checked with seed ${seed}`);
        assert.ok(checks > 100, `only ${checks} disk states were checked`);
      }
    });
  }
}

interface Edit {
  readonly part: keyof Parts;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

interface Planted {
  readonly bug: string;
  readonly edits: readonly Edit[];
  readonly history: readonly Step[];
  readonly shape: Shape;
  readonly caught: RegExp;
}

const PLANTED: readonly Planted[] = [
  {
    bug: 'a copy counts before it is written',
    edits: [
      {
        part: 'VolumeSet',
        file: '../src/placement/copies.ts',
        find: 'this.#init.write(member).then(',
        replace: 'this.#init.write(member).catch(() => undefined);\n    Promise.resolve().then(',
      },
    ],
    // The parts of larger objects are verified before the object is acknowledged.
    history: [(history) => history.put(100, 1), (history) => history.put(300, 3)],
    shape: ONE,
    caught: /promised: true/,
  },
  {
    bug: 'parity shards are collected as garbage',
    edits: [
      {
        part: 'VolumeSet',
        file: '../src/repair/reclaim-set.ts',
        find: '!set.holds.isFree(id) || survey.isHome(member, id)',
        replace: '!set.holds.isFree(id)',
      },
    ],
    history: STRIPES,
    shape: TWO,
    caught: /shards of a stripe|is missing|cannot be read|not repaired/,
  },
  {
    bug: 'copies are reclaimed while only one volume has the stripe record',
    edits: [
      {
        part: 'VolumeSet',
        file: '../src/stripes/stripe-health.ts',
        find: "knowersOf(set, layout).every((member) => member.holdsDurably('stripe', id))",
        replace: 'id.length > 0',
      },
      {
        part: 'Striper',
        file: '../src/stripes/striper.ts',
        find: 'homes.slice(data_shards)',
        replace: 'homes.slice(data_shards, data_shards + 1)',
      },
    ],
    history: UNCHECKED,
    shape: TWO,
    caught: /is missing|cannot be read/,
  },
];

const urlOf = (path: string): string => import.meta.resolve(path);
const ENTRIES: Record<keyof Parts, string> = {
  VolumeSet: '../src/set/volume-set.ts',
  Striper: '../src/stripes/striper.ts',
};
const THROUGH = [
  'set/set-writer',
  'repair/reclaim-set',
  'stripes/stripe-survey',
  'membership/membership',
  'lifecycle/set-lifecycle',
].map((name) => urlOf(`../src/${name}.ts`));

async function broken(edits: readonly Edit[]): Promise<Parts> {
  const parts = { ...PARTS };
  for (const { part, file, find, replace } of edits) {
    const init = { entry: urlOf(ENTRIES[part]), through: THROUGH };
    Object.assign(parts, { [part]: (await mutant<Parts>(urlOf(file), find, replace, init))[part] });
  }
  return parts;
}

for (const { bug, edits, history, shape, caught } of PLANTED) {
  test(`detects a planted bug: ${bug}`, async () => {
    const parts = await broken(edits);
    await assert.rejects(checkEveryCrash(history, shape, parts), caught);
  });
}
