/** Every record decodes to the entries that were encoded, and no bytes make a decoder fail in another way than `MalformedRecord`. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { MalformedRecord } from './bytes.ts';
import {
  decodeAccepted,
  decodeBase,
  decodeLeased,
  decodeReturned,
  decodeSeen,
  decodeSettled,
  decodeTopic,
  encodeAccepted,
  encodeBase,
  encodeLeased,
  encodeReturned,
  encodeSeen,
  encodeSettled,
  encodeTopic,
  SEEN_BYTES,
} from './entry-codec.ts';
import {
  decodeMessageId,
  DecodedMeta,
  encodeMessageId,
  encodeMeta,
  isMetaIntact,
  markId,
  markIn,
} from './message-codec.ts';

const u48 = fc.nat(2 ** 48 - 1).filter(Number.isSafeInteger);
const seq = fc.maxSafeNat().map((value) => value % 2 ** 48);
const u32 = fc.nat(2 ** 31 - 1).map((value) => value * 2);
const u16 = fc.nat(2 ** 16 - 1);
const nonce = fc.maxSafeNat();
const text = fc.string({ maxLength: 40, unit: 'grapheme' });
const optional = <T>(one: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => fc.option(one, { nil: undefined });
const bytes = (count: number): fc.Arbitrary<Uint8Array> => fc.uint8Array({ minLength: count, maxLength: count });
const reason = fc.constantFrom('max_deliveries', 'nacked', 'expired', 'damaged');
const topic = fc.constantFrom('a', 'hooks.github');
const numberOf = (name: string): number => (name === 'a' ? 0 : 513);
const topicOf = (number: number): string => {
  if (number !== 0 && number !== 513) throw new MalformedRecord('unknown');
  return number === 0 ? 'a' : 'hooks.github';
};
const totals = fc.record({ sent: seq, acked: seq, dead: seq, gone: seq });
const policy = fc.record(
  {
    max_messages: seq,
    max_bytes: seq,
    max_age_ms: seq,
    max_deliveries: seq,
    window_ms: seq,
    dead_max_age_ms: seq,
    dead_max_messages: seq,
    dead_max_bytes: seq,
  },
  { requiredKeys: [] },
);
const list = <T>(one: fc.Arbitrary<T>): fc.Arbitrary<T[]> => fc.array(one, { maxLength: 5 });

const leases = list(fc.record({ seq, delivery: u32, attempts: u32, nonce, until_ms: seq, visibility_ms: u32 }));
const returns = list(fc.record({ seq, delivery: u32, not_before_ms: seq, delay_ms: u32, error: optional(text) }));
const settled = list(
  fc.oneof(
    fc.record({ outcome: fc.constantFrom('acked' as const, 'removed' as const), seq, topic }),
    fc.record({
      outcome: fc.constant('dead' as const),
      seq,
      topic,
      reason: reason as fc.Arbitrary<'nacked'>,
      attempts: u32,
      dead_ms: seq,
      error: optional(text),
    }),
  ),
);
const bases = fc.record({
  seq_before: seq,
  topics: list(fc.record({ number: u16, topic: text, policy, totals })),
});
const seen = list(fc.record({ topic, hash: bytes(16), id: bytes(16), seq, b3: bytes(12), until_ms: u48 }));
const accepted = fc.record({
  at_ms: seq,
  reason: text,
  isAll: fc.boolean(),
  problems: list(text),
  totals: list(fc.record({ number: u16, totals })),
});
const state = fc.record({
  delivery: u32,
  attempts: u32,
  nonce,
  until_ms: seq,
  visibility_ms: u32,
  not_before_ms: seq,
  error: optional(text),
  dead: optional(fc.record({ reason: reason as fc.Arbitrary<'nacked'>, dead_ms: seq })),
});
const meta = fc.record({
  topic,
  key: optional(text),
  idempotency_key: optional(text),
  sent_ms: seq,
  not_before_ms: seq,
  headers: fc.dictionary(text, text, { maxKeys: 4, noNullPrototype: true }),
  replay_of: optional(text),
  b3: bytes(32),
});

/** The same values with plain arrays for bytes. */
function plain(value: unknown): unknown {
  if (value instanceof Uint8Array) return [...value];
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, plain(each)]));
}

function roundTrip<T>(values: fc.Arbitrary<T>, encode: (value: T) => Buffer, decode: (payload: Buffer) => T): void {
  fc.assert(fc.property(values, (value) => assert.deepEqual(plain(decode(encode(value))), plain(value))));
}

test('every record decodes to the entries that were encoded', () => {
  roundTrip(leases, encodeLeased, decodeLeased);
  roundTrip(returns, encodeReturned, decodeReturned);
  roundTrip(
    settled,
    (entries) => encodeSettled(entries, numberOf),
    (payload) => decodeSettled(payload, topicOf) as never,
  );
  roundTrip(fc.record({ number: u16, topic: text, policy, isNew: fc.boolean() }), encodeTopic, decodeTopic as never);
  roundTrip(bases, encodeBase, decodeBase as never);
  roundTrip(
    seen,
    (entries) => encodeSeen(entries, numberOf),
    (payload) => decodeSeen(payload, topicOf) as never,
  );
  roundTrip(accepted, encodeAccepted, decodeAccepted as never);
});

test('an entry of a seen record has the stated size', () => {
  const entry = {
    topic: 'a',
    hash: new Uint8Array(16),
    id: new Uint8Array(16),
    seq: 1,
    b3: new Uint8Array(12),
    until_ms: 1,
  };
  assert.equal(encodeSeen([entry], numberOf).length, 2 + SEEN_BYTES);
});

test('the meta and the id of a message decode to the values that were encoded', () => {
  const all = fc.record({
    meta,
    state: optional(state),
    replaces: optional(seq),
    ulid: bytes(16),
    number: u16,
    mark: seq,
  });
  fc.assert(
    fc.property(all, (one) => {
      const encoded = encodeMeta(one.meta, one);
      const decoded = new DecodedMeta(one.meta.topic, encoded);
      const { key, idempotency_key, sent_ms, not_before_ms, headers, replay_of, b3 } = decoded;
      const fields = { topic: decoded.topic, key, idempotency_key, sent_ms, not_before_ms, headers, replay_of, b3 };
      assert.deepEqual(plain(fields), plain(one.meta));
      assert.deepEqual(plain(decoded.state), plain(one.state));
      assert.equal(decoded.replaces, one.replaces);
      const id = decodeMessageId(encodeMessageId(one.ulid, one.number, encoded, one.mark, one.state))!;
      assert.deepEqual([[...id.ulid], id.topic, id.mark], [[...one.ulid], one.number, one.mark]);
      assert.deepEqual([id.isMoved, id.isDead], [one.state !== undefined, one.state?.dead !== undefined]);
      assert.ok(isMetaIntact(id, encoded));
      assert.equal(markIn(markId(one.mark)), one.mark);
    }),
  );
});

const decoders: readonly ((payload: Buffer) => unknown)[] = [
  decodeLeased,
  decodeReturned,
  (payload) => decodeSettled(payload, topicOf),
  decodeTopic,
  decodeBase,
  (payload) => decodeSeen(payload, topicOf),
  decodeAccepted,
  (payload) => new DecodedMeta('a', payload),
];

/** Decodes or throws `MalformedRecord`, and allocates no list that the bytes cannot hold. */
function tolerate(payload: Buffer): void {
  for (const decode of decoders) {
    try {
      const decoded = decode(payload);
      if (decoded instanceof DecodedMeta)
        void [decoded.key, decoded.idempotency_key, decoded.replay_of, decoded.headers];
      if (Array.isArray(decoded)) assert.ok(decoded.length <= payload.length);
    } catch (error) {
      assert.ok(error instanceof MalformedRecord, String(error));
    }
  }
}

test('no bytes crash a decoder', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (some) => tolerate(Buffer.from(some))),
    { numRuns: 2000 },
  );
});

test('no cut or changed byte of a valid record crashes a decoder, and a cut one is malformed', () => {
  const valid = fc.oneof(
    leases.map(encodeLeased),
    returns.map(encodeReturned),
    settled.map((entries) => encodeSettled(entries, numberOf)),
    bases.map(encodeBase),
    seen.map((entries) => encodeSeen(entries, numberOf)),
    accepted.map(encodeAccepted),
    meta.map((one) => encodeMeta(one)),
  );
  fc.assert(
    fc.property(valid, fc.nat(), fc.nat(255), (payload, at, value) => {
      const place = at % payload.length;
      tolerate(payload.subarray(0, place));
      tolerate(Buffer.from(payload.with(place, value)));
      tolerate(Buffer.concat([payload, Buffer.of(value)]));
    }),
    { numRuns: 2000 },
  );
  fc.assert(
    fc.property(bases, (base) => {
      const payload = encodeBase(base);
      assert.throws(() => decodeBase(payload.subarray(0, -1)), MalformedRecord);
      assert.throws(() => decodeBase(Buffer.concat([payload, Buffer.of(0)])), MalformedRecord);
    }),
  );
});
