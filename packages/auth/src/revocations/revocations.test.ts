import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Bench } from '../../test/support.ts';
import { NO_REVOCATIONS, requireDocument, Revocations, SUBJECTS_MAX, subjectTag } from './revocations.ts';
import type { RevocationDocument } from './revocations.ts';

const document = (version: number, all: number, subjects: Record<string, number>): RevocationDocument => ({
  version,
  all,
  subjects: Object.fromEntries(Object.entries(subjects).map(([name, epoch]) => [subjectTag(name), epoch])),
  ids: {},
});

test('exactly the capabilities issued before the epoch of their subject, or of all, are refused', async () => {
  const epochs = new Revocations();
  const bench = new Bench({ epochs });
  const alice = await bench.token({ subject: 'alice', epoch: 1000 });
  const bob = await bench.token({ subject: 'bob', epoch: 1000 });
  await bench.allowed(alice);
  epochs.apply(document(1, 0, { alice: 1001 }));
  assert.equal((await bench.refused(alice)).reason, 'capability was revoked');
  await bench.allowed(bob);
  await bench.allowed(await bench.token({ subject: 'alice', epoch: 1001 }));
  epochs.apply(document(2, 1500, {}));
  await bench.refused(bob);
  await bench.refused(alice);
  assert.equal(epochs.size, 0, 'floors below that of all subjects are dropped');
});

test('floors only rise, for any documents in any order', () => {
  const name = fc.constantFrom('a', 'b', 'c');
  const some = fc.record({ all: fc.nat(20), subjects: fc.dictionary(name, fc.nat(20)) });
  fc.assert(
    fc.property(fc.array(some, { maxLength: 8 }), (documents) => {
      const revocations = new Revocations();
      const expected = new Map([
        ['a', 0],
        ['b', 0],
        ['c', 0],
      ]);
      let all = 0;
      for (const [at, { all: ofAll, subjects }] of documents.entries()) {
        revocations.apply(document(at, ofAll, subjects));
        all = Math.max(all, ofAll);
        for (const [subject, epoch] of Object.entries(subjects))
          expected.set(subject, Math.max(expected.get(subject)!, epoch));
        for (const [subject, epoch] of expected) assert.equal(revocations.floor(subject), Math.max(all, epoch));
      }
      const again = new Revocations();
      again.apply(revocations.document());
      for (const subject of expected.keys()) assert.equal(again.floor(subject), revocations.floor(subject));
    }),
  );
});

test('the document reveals no subject', () => {
  assert.match(subjectTag('alice'), /^[A-Za-z0-9_-]{22}$/);
  assert.notEqual(subjectTag('alice'), subjectTag('alicf'));
  assert.ok(!JSON.stringify(document(1, 0, { alice: 5 })).includes('alice'));
});

test('a malformed document is refused as a whole', () => {
  const tag = subjectTag('x');
  const bad = [
    undefined,
    null,
    [],
    {},
    { version: 1, all: 0 },
    { version: -1, all: 0, subjects: {} },
    { version: 1, all: 0.5, subjects: {} },
    { version: 1, all: 0, subjects: { x: 1 } },
    { version: 1, all: 0, subjects: { [tag]: -1 } },
    { version: 1, all: 0, subjects: { [tag]: '1' } },
  ];
  for (const value of bad) assert.throws(() => requireDocument(value), { code: 'integrity' }, JSON.stringify(value));
  assert.deepEqual(requireDocument(NO_REVOCATIONS), NO_REVOCATIONS);
});

test('memory is bounded: at the bound the newest document counts', () => {
  const revocations = new Revocations();
  const many = (prefix: string): Record<string, number> =>
    Object.fromEntries(Array.from({ length: SUBJECTS_MAX }, (_, at) => [`${prefix}${at}`, 7]));
  revocations.apply(document(1, 0, many('a')));
  revocations.apply(document(2, 0, many('b')));
  assert.equal(revocations.size, 2 * SUBJECTS_MAX);
  revocations.apply(document(3, 0, many('c')));
  assert.equal(revocations.size, SUBJECTS_MAX);
  assert.equal(revocations.floor('c1'), 7);
});
