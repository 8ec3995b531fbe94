/** The engine on a disk that loses power: no acknowledged change is lost at any crash point of small histories. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { checkEveryCrash, CHUNK, COMPACTION, ENGINE, NOTES, OBJECTS, UPLOADS, type Step } from './crash-history.ts';

test('objects, removals and pins survive every crash', async () => {
  const images = await checkEveryCrash(OBJECTS);
  assert.ok(images > 100, `only ${images} disks were tried`);
});

test('a note and its object survive every crash together, and a removed note does not come back', async () => {
  const images = await checkEveryCrash(NOTES, ENGINE, 8);
  assert.ok(images > 100, `only ${images} disks were tried`);
});

test('uploads survive every crash', async () => {
  const images = await checkEveryCrash(UPLOADS);
  assert.ok(images > 100, `only ${images} disks were tried`);
});

test('compaction survives every crash', async () => {
  const images = await checkEveryCrash(COMPACTION, ENGINE, 8);
  assert.ok(images > 100, `only ${images} disks were tried`);
});

test('any history survives sampled crashes', async () => {
  const size = fc.constantFrom(50, CHUNK, CHUNK + 1, 3 * CHUNK);
  const seed = fc.nat(2);
  const step: fc.Arbitrary<Step> = fc.oneof(
    fc.tuple(size, seed).map(
      ([s, n]): Step =>
        (history) =>
          history.put(s, n),
    ),
    fc.tuple(size, seed).map(
      ([s, n]): Step =>
        (history) =>
          history.remove(s, n),
    ),
    fc.tuple(size, seed, fc.boolean()).map(
      ([s, n, on]): Step =>
        (history) =>
          history.pin(s, n, on),
    ),
    fc.tuple(size, seed, fc.array(fc.nat(2000), { maxLength: 3 })).map(([s, n, pieces]): Step => {
      return (history) => history.upload(s, n, pieces);
    }),
    fc.constant<Step>((history) => history.compact()),
  );
  const steps = fc.array(step, { minLength: 3, maxLength: 8 });
  const numRuns = process.env['RON_LONG'] === '1' ? 200 : 5;
  await fc.assert(
    fc.asyncProperty(steps, async (each) => void (await checkEveryCrash(each, ENGINE, 3))),
    { numRuns },
  );
});
