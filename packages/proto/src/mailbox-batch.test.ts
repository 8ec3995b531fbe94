/** The framed batch: every cut and every length is handled, and no input makes the decoder allocate more than a message. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  BatchDecoder,
  BatchError,
  PayloadSizeError,
  decodeBatch,
  encodeBatch,
  RECEIVE_BATCH,
  SEND_BATCH,
  type BatchItem,
  type BatchLimits,
} from './mailbox-batch.ts';

const numRuns = Number(process.env['RON_FUZZ_RUNS'] ?? 200);
const LIMITS: BatchLimits = { messages: 8, head_bytes: 512, payload_bytes: 200_000, total_bytes: 1_000_000 };

const item: fc.Arbitrary<BatchItem> = fc.record({
  head: fc.dictionary(fc.string({ maxLength: 8 }), fc.string({ maxLength: 8, unit: 'binary' }), { maxKeys: 3 }),
  payload: fc.oneof(
    fc.uint8Array({ maxLength: 40 }),
    fc.integer({ min: 65_530, max: 65_545 }).map((length) => new Uint8Array(length).fill(7)),
  ),
});
const items = fc.array(item, { maxLength: 8 });

const bytesOf = (batch: readonly BatchItem[]): Uint8Array => Buffer.concat(encodeBatch(batch));
/** Comparable: payloads may be views of other kinds of buffers. */
const shown = (batch: readonly BatchItem[]): unknown =>
  batch.map(({ head, payload }) => [JSON.stringify(head), Buffer.from(payload).toString('latin1')]);

function lengths(head_bytes: number, payload_bytes: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeUInt32BE(head_bytes, 0);
  bytes.writeUInt32BE(payload_bytes, 4);
  return bytes;
}
const batchOf = (...parts: readonly (Uint8Array | string)[]): Buffer =>
  Buffer.concat(['RONB', ...parts].map((part) => (typeof part === 'string' ? Buffer.from(part) : part)));

function inPieces(bytes: Uint8Array, cuts: readonly number[], limits = LIMITS): BatchItem[] {
  const decoder = new BatchDecoder(limits);
  const found: BatchItem[] = [];
  let from = 0;
  for (const cut of [...cuts, bytes.length]) {
    found.push(...decoder.push(bytes.subarray(from, cut)));
    from = cut;
  }
  decoder.end();
  return found;
}

test('a batch is decoded as it was encoded, in memory and in pieces of any size', () => {
  fc.assert(
    fc.property(items, fc.array(fc.nat(), { maxLength: 12 }), (batch, at) => {
      const bytes = bytesOf(batch);
      const cuts = at.map((each) => each % (bytes.length + 1)).toSorted((a, b) => a - b);
      assert.deepEqual(shown(decodeBatch(bytes, LIMITS)), shown(batch));
      assert.deepEqual(shown(inPieces(bytes, cuts)), shown(batch));
    }),
    { numRuns },
  );
});

test('the format is as documented', () => {
  const bytes = bytesOf([{ head: { topic: 'a', note: 'é' }, payload: Buffer.from('xyz') }]);
  const head = '{"topic":"a","note":"\\u00e9"}';
  assert.equal(Buffer.from(bytes).toString('latin1'), batchOf(lengths(head.length, 3), head, 'xyz').toString('latin1'));
  assert.equal(Buffer.concat(encodeBatch([])).toString(), 'RONB');
  const utf8 = batchOf(lengths(12, 0), '{"note":"é"}'.slice(0, 12));
  assert.throws(() => decodeBatch(utf8, LIMITS), BatchError, 'é has two bytes');
  const [decoded] = decodeBatch(batchOf(lengths(13, 0), '{"note":"é"}'), LIMITS);
  assert.deepEqual(decoded?.head, { note: 'é' });
});

test('a batch that is cut at any byte is refused, unless it is cut between messages', () => {
  const batch = [
    { head: { n: 1 }, payload: Buffer.from('first') },
    { head: { n: 2 }, payload: new Uint8Array(0) },
    { head: { n: 3 }, payload: Buffer.from('third') },
  ];
  const bytes = bytesOf(batch);
  const ends = [0, 1, 2, 3].map((count) => bytesOf(batch.slice(0, count)).length);
  for (let cut = 0; cut <= bytes.length; cut++) {
    const part = bytes.subarray(0, cut);
    const whole = ends.indexOf(cut);
    if (whole >= 0) assert.equal(decodeBatch(part, LIMITS).length, whole);
    else {
      assert.throws(() => decodeBatch(part, LIMITS), BatchError, `cut at ${cut}`);
      assert.throws(() => inPieces(part, [cut >> 1]), BatchError, `cut at ${cut}`);
    }
  }
});

test('a flipped byte is refused or changes a message, and never breaks the decoder', () => {
  const bytes = bytesOf([{ head: { n: 1 }, payload: Buffer.from('first') }]);
  for (let at = 0; at < bytes.length; at++) {
    for (let bit = 0; bit < 8; bit++) {
      const other = Uint8Array.from(bytes);
      other[at]! ^= 1 << bit;
      refusedOrBounded(other);
    }
  }
});

test('random bytes are refused or decoded within the limits', () => {
  const withMagic = fc.uint8Array({ maxLength: 200 }).map((bytes) => batchOf(bytes));
  const plausible = fc
    .tuple(fc.nat(40), fc.nat(40), fc.uint8Array({ maxLength: 100 }))
    .map(([head, payload, rest]) => batchOf(lengths(head, payload), '{"a":1}', rest));
  fc.assert(fc.property(fc.oneof(fc.uint8Array({ maxLength: 100 }), withMagic, plausible), refusedOrBounded), {
    numRuns: 10 * numRuns,
  });
});

function refusedOrBounded(bytes: Uint8Array): void {
  let found: BatchItem[] = [];
  try {
    found = decodeBatch(bytes, LIMITS);
  } catch (error) {
    assert.ok(error instanceof BatchError, String(error));
  }
  const total = found.reduce((sum, { payload }) => sum + payload.length, 0);
  assert.ok(total <= bytes.length && found.length <= LIMITS.messages);
}

test('lengths are refused before memory is allocated for them', () => {
  const huge = 0xffff_ffff;
  const cases: [number, number, RegExp][] = [
    [huge, 0, /^a head has 2 to 512 bytes$/],
    [513, 0, /^a head has 2 to 512 bytes$/],
    [1, 0, /^a head has 2 to 512 bytes$/],
    [0, 0, /^a head has 2 to 512 bytes$/],
    [2, huge, /^the lengths of the messages exceed/],
    [2, 200_000, /^the lengths of the messages exceed/],
    [2, 1, /^the lengths of the messages exceed/],
  ];
  for (const [head, payload, message] of cases) {
    const bytes = batchOf(lengths(head, payload), '{}');
    const before = process.memoryUsage().arrayBuffers;
    assert.throws(() => decodeBatch(bytes, LIMITS), { message }, `${head} ${payload}`);
    assert.ok(process.memoryUsage().arrayBuffers - before < 100_000, `${head} ${payload}`);
  }
});

test('a payload above the limit of a message is refused by its place, once the batch has room for it', () => {
  const message = (payload_bytes: number) => Buffer.concat([lengths(2, payload_bytes), Buffer.from('{}')]);
  const bytes = batchOf(message(0), message(200_001), Buffer.alloc(200_001));
  const refusal = (error: unknown): boolean =>
    error instanceof PayloadSizeError && error.message === 'messages/1/payload is larger than 200000 bytes';
  assert.throws(() => decodeBatch(bytes, LIMITS), refusal);
  assert.throws(() => inPieces(bytes.subarray(0, 22), [7, 15]), refusal);
});

test('a stream that announces more than the limit of the batch is refused at the message that exceeds it', () => {
  const limits = { ...LIMITS, total_bytes: 40 };
  const decoder = new BatchDecoder(limits);
  const message = Buffer.concat([lengths(2, 10), Buffer.from('{}0123456789')]);
  assert.equal(decoder.push(batchOf(message)).length, 1);
  assert.throws(() => decoder.push(message), BatchError);
  assert.throws(() => decoder.push(new Uint8Array(1)), BatchError, 'an error is final');
  assert.throws(() => decoder.end(), BatchError);
});

test('one message more than allowed is refused', () => {
  const batch = (count: number): Uint8Array =>
    bytesOf(Array.from({ length: count }, () => ({ head: {}, payload: new Uint8Array(0) })));
  for (const limits of [SEND_BATCH, RECEIVE_BATCH]) {
    assert.equal(decodeBatch(batch(128), limits).length, 128);
    assert.throws(() => decodeBatch(batch(129), limits), /more than 128 messages/);
  }
});

test('a head is a JSON object in UTF-8', () => {
  for (const head of ['[]', 'null', '"a"', '12', '{"a"', '{}x', '{} {}', '\xff\xfe', 'xx']) {
    const bytes = batchOf(lengths(head.length, 0), Buffer.from(head, 'latin1'));
    assert.throws(() => decodeBatch(bytes, LIMITS), BatchError, head);
  }
});
