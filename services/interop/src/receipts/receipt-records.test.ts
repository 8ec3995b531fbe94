/** Arbitrary records of the receipt log: read as they were written, or refused. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { isRonError, NEVER } from '@ron/kernel';
import { CrashFileSystem } from '@ron/log/testing';
import { eventually, fuzzRuns } from '@ron/testkit';
import { appendAll, FakeKms, KID, openTest, receiptOf, receiptsOf, running } from './testing/receipts.ts';
import { batchIn, batchRecord, idsIn, receiptIn, receiptRecord, type Batch } from './receipt-records.ts';

const text = fc.string({ unit: 'binary', maxLength: 40 });
const hash = fc.uint8Array({ minLength: 32, maxLength: 32 });
const batches: fc.Arbitrary<Batch> = fc
  .record({
    root: hash,
    entries: fc.array(fc.tuple(fc.uint8Array({ minLength: 16, maxLength: 16 }), hash), { maxLength: 20 }),
    kid: text,
    sigs: fc.array(fc.record({ kid: text, alg: text, signature_b64: text }, { noNullPrototype: true }), {
      maxLength: 3,
    }),
    log_index: fc.option(fc.maxSafeNat(), { nil: undefined }),
  })
  .map(({ entries, log_index, ...batch }) => ({
    ...batch,
    ids: entries.map(([id]) => id),
    leaves: entries.map(([, leaf]) => leaf),
    ...(log_index !== undefined && { log_index }),
  }));

test('every receipt and every batch is decoded as it was encoded', () => {
  fc.assert(
    fc.property(fc.nat(2 ** 31), text, fc.maxSafeNat(), batches, (number, delivery_id, received_ms, batch) => {
      const receipt = receiptOf(number, { delivery_id, received_ms });
      assert.deepEqual(receiptIn(receiptRecord(receipt).payload), receipt);
      const { id, payload, meta } = batchRecord(batch);
      assert.deepEqual(batchIn(id, payload, meta!), batch);
      assert.deepEqual([...idsIn(payload)], batch.ids);
    }),
    fuzzRuns(500),
  );
});

test('arbitrary bytes are decoded or are no JSON; ids and leaves are as many as fit', () => {
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 200 }),
    fc.json().map((json) => new Uint8Array(Buffer.from(json))),
  );
  fc.assert(
    fc.property(hash, bytes, bytes, (root, payload, meta) => {
      assert.equal([...idsIn(payload)].length, Math.floor(payload.length / 48));
      for (const decode of [() => receiptIn(meta), () => batchIn(root, payload, meta)]) {
        try {
          decode();
        } catch (error) {
          assert.ok(error instanceof SyntaxError, String(error));
        }
      }
    }),
    fuzzRuns(2000),
  );
});

test('a changed byte on disk changes no receipt and no signature: they are the same, missing or refused', async () => {
  const kms = new FakeKms();
  const written = receiptsOf(1, 3);
  const fs = new CrashFileSystem();
  {
    const { receipts } = await openTest(fs, { kms });
    await using _ = running(receipts);
    await appendAll(receipts, written);
    await eventually('all are signed', async () => {
      const states = await Promise.all(written.map(({ id }) => receipts.get(id, NEVER)));
      return states.every((state) => state?.signed !== undefined);
    });
    await receipts[Symbol.asyncDispose]();
  }
  const files = fs.files();
  const [path, content] = [...files].find(([name]) => name.endsWith('.seg'))!;
  let [same, other] = [0, 0];
  await fc.assert(
    fc.asyncProperty(fc.nat(content.length - 1), fc.integer({ min: 1, max: 255 }), async (at, mask) => {
      const copy = new CrashFileSystem(new Map(files));
      copy.damage(path, (bytes) => bytes.with(at, bytes[at]! ^ mask));
      const { receipts } = await openTest(copy, { kms: undefined });
      for (const receipt of written) {
        try {
          const state = await receipts.get(receipt.id, NEVER);
          if (state !== undefined) assert.deepEqual(state.receipt, receipt);
          if (state?.signed === undefined) other += 1;
          else {
            assert.deepEqual([state.signed.receipt, state.signed.kid], [receipt, KID]);
            same += 1;
          }
        } catch (error) {
          assert.ok(isRonError(error, 'integrity'), String(error));
          other += 1;
        }
      }
      await receipts[Symbol.asyncDispose]();
    }),
    fuzzRuns(200),
  );
  assert.ok(same > 0 && other > 0, `${same} the same, ${other} missing or refused`);
});
