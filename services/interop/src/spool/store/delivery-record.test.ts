/** Arbitrary records of the spool: read as they were written, or refused. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { NEVER } from '@ron/kernel';
import type { LogRecord, RecordInput } from '@ron/log';
import { CrashFileSystem } from '@ron/log/testing';
import { formatUlid, ULID_BYTES } from '@ron/proto';
import { fuzzRuns } from '@ron/testkit';
import type { Spool } from '../spool.ts';
import { deliveryOf, openSpool } from '../testing/make.ts';
import {
  decodeDelivery,
  decodeIndexed,
  decodeSettled,
  encodeDelivery,
  encodeSettled,
  RECORD,
  type SpooledDelivery,
} from './delivery-record.ts';

const id = fc.uint8Array({ minLength: ULID_BYTES, maxLength: ULID_BYTES }).map(formatUlid);
const text = fc.string({ unit: 'binary', maxLength: 40 });
const deliveries: fc.Arbitrary<SpooledDelivery> = fc
  .record({
    id,
    provider: fc.stringMatching(/^[a-z0-9_]{1,32}$/),
    topic: text,
    key: fc.uint8Array({ minLength: 32, maxLength: 32 }),
    headers: fc.dictionary(text, text, { maxKeys: 8, noNullPrototype: true }),
    received_ms: fc.maxSafeNat(),
    payload: fc.uint8Array({ maxLength: 200 }),
    delivery_id: fc.option(text, { nil: undefined }),
  })
  .map(({ key, delivery_id, headers, payload, ...common }) => {
    const { id: of, provider, topic, received_ms } = common;
    const receipt = { ...deliveryOf(1).receipt, id: of, provider, topic, received_ms, bytes: payload.length };
    return {
      ...common,
      headers,
      payload: Buffer.from(payload),
      idempotency_key: Buffer.from(key).toString('hex'),
      receipt: { ...receipt, ...(delivery_id !== undefined && { delivery_id }) },
    };
  });

/** As the log gives it back. */
function recordOf({ type, id: of, payload, meta = new Uint8Array(0) }: RecordInput): LogRecord {
  const [payload_bytes, meta_bytes] = [payload.length, meta.length];
  return {
    head: { type, id: Uint8Array.from(of), payload_bytes, meta_bytes, seq: 1, time_s: 1, body_crc: 0 },
    payload,
    meta,
  };
}

test('every delivery is decoded as it was encoded, with the fields of the index', () => {
  fc.assert(
    fc.property(deliveries, (delivery) => {
      const record = encodeDelivery(delivery);
      assert.deepEqual(decodeDelivery(recordOf(record)), delivery);
      const indexed = decodeIndexed(Buffer.from(record.meta!))!;
      const { provider, received_ms } = delivery;
      assert.deepEqual({ ...indexed, id: formatUlid(indexed.id) }, { id: delivery.id, provider, received_ms });
    }),
    fuzzRuns(500),
  );
});

/** The meta of a record with any JSON in place of its fields. */
const near = fc
  .tuple(
    deliveries,
    fc.oneof(
      fc.json(),
      text,
      fc
        .record(
          { topic: fc.oneof(text, fc.jsonValue()), headers: fc.jsonValue(), receipt: fc.jsonValue() },
          { requiredKeys: [] },
        )
        .map((fields) => JSON.stringify(fields)),
    ),
  )
  .map(([delivery, json]) => {
    const { meta } = encodeDelivery(delivery);
    const bytes = Buffer.from(meta!);
    return Buffer.concat([bytes.subarray(0, 1 + bytes[0]! + ULID_BYTES + 8), Buffer.from(json)]);
  });
const isObject = (value: unknown): boolean => typeof value === 'object' && value !== null && !Array.isArray(value);

test('arbitrary meta is refused, or has fields of the right types', () => {
  let read = 0;
  const metas = fc.oneof(fc.uint8Array({ maxLength: 120 }), near);
  fc.assert(
    fc.property(metas, fc.constantFrom(RECORD.delivery, RECORD.settled, 0, 255), (meta, type) => {
      const record = recordOf({ type, id: new Uint8Array(32), payload: Buffer.from('x'), meta });
      const delivery = decodeDelivery(record);
      const indexed = decodeIndexed(Buffer.from(meta));
      if (type !== RECORD.delivery || indexed === undefined) assert.equal(delivery, undefined);
      if (delivery === undefined) return;
      read += 1;
      assert.equal(typeof delivery.topic, 'string');
      assert.ok(isObject(delivery.headers) && isObject(delivery.receipt));
      assert.deepEqual([delivery.id, delivery.provider], [formatUlid(indexed!.id), indexed!.provider]);
    }),
    fuzzRuns(2000),
  );
  assert.ok(read > 0, 'some are read');
});

test('settled ids are decoded as they were encoded, and a cut one is left out', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
      const { type, payload } = encodeSettled(bytes);
      assert.equal(type, RECORD.settled);
      const ids = [...decodeSettled(Buffer.from(payload))];
      assert.ok(ids.every(({ length }) => length === ULID_BYTES));
      const whole = bytes.length - (bytes.length % ULID_BYTES);
      assert.deepEqual(Buffer.concat(ids), Buffer.from(bytes.subarray(0, whole)));
    }),
    fuzzRuns(500),
  );
});

test('a changed byte on disk loses at most the delivery that it hits, which is reported', async () => {
  await fc.assert(
    fc.asyncProperty(fc.nat(), fc.integer({ min: 1, max: 255 }), async (place, mask) => {
      const fs = new CrashFileSystem();
      const { spool } = await openSpool({ fs });
      const sent = [1, 2, 3].map((n) => deliveryOf(n, 'p', 40 * n));
      for (const delivery of sent) await spool.append(delivery, NEVER);
      await spool.close();
      const [path, content] = [...fs.files()].find(([name]) => name.endsWith('.seg'))!;
      const at = place % content.length;
      fs.damage(path, (bytes) => bytes.with(at, bytes[at]! ^ mask));
      const { spool: again, events } = await openSpool({ fs });
      const read = await readAll(again);
      assert.ok(read.length >= sent.length - 1, `byte ${at}`);
      for (const delivery of read) {
        const original = sent.find((each) => each.id === delivery.id);
        assert.deepEqual(delivery, original, `byte ${at}`);
      }
      if (read.length < sent.length)
        assert.ok(
          events.some(({ kind }) => kind === 'spool damaged'),
          `byte ${at}`,
        );
      await again.close();
    }),
    fuzzRuns(200),
  );
});

/** The deliveries whose records are intact. */
async function readAll(spool: Spool): Promise<SpooledDelivery[]> {
  const tickets = spool.take({ messages: 128, bytes: 1024 * 1024 }, () => Infinity);
  const read = await Promise.all(tickets.map((ticket) => spool.read(ticket)));
  for (const [at, ticket] of tickets.entries()) if (read[at] === undefined) spool.drop(ticket);
  return read.filter((delivery) => delivery !== undefined);
}
