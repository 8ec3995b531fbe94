import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import fc from 'fast-check';
import { FrameReader } from './frame-reader.ts';
import { decodeMessage, decodeRecord, encodeMessage, encodeRecord, KAD, type KadMessage } from './message.ts';

// kad-dht does not export its codec; the test imports the file, to compare with the bytes of the original.
const { Message, MessageType } = (await import(
  new URL('message/dht.js', import.meta.resolve('@libp2p/kad-dht')).href
)) as {
  Message: { encode: (message: object) => Uint8Array; decode: (bytes: Uint8Array) => Record<string, unknown> };
  MessageType: Record<string, string>;
};

const bytes = (min: number, max: number): fc.Arbitrary<Uint8Array> => fc.uint8Array({ minLength: min, maxLength: max });
const peer = fc.record({ id: bytes(1, 40), addrs: fc.array(bytes(1, 40), { maxLength: 4 }) });
const message: fc.Arbitrary<KadMessage> = fc.record({
  type: fc.constantFrom(...Object.values(KAD)),
  key: fc.option(bytes(0, 64), { nil: undefined }),
  record: fc.option(bytes(0, 1200), { nil: undefined }),
  closer: fc.array(peer, { maxLength: 20 }),
  providers: fc.array(peer, { maxLength: 32 }),
});

const body = (frame: Uint8Array): Uint8Array => new FrameReader(1 << 20).push(frame)[0]!;
/** Byte strings as hex, so that a view and a copy compare equal. */
function plain(value: unknown): unknown {
  if (ArrayBuffer.isView(value)) return Buffer.from(value as Uint8Array).toString('hex');
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, plain(part)]));
}

test('a message survives encoding, and kad-dht reads and writes the same bytes', () => {
  fc.assert(
    fc.property(message, (sent) => {
      const frame = body(encodeMessage(sent));
      assert.deepEqual(plain(decodeMessage(frame)), plain(sent));
      const stock = Message.decode(frame);
      assert.equal(stock['type'], MessageType[Object.keys(KAD)[sent.type]!]);
      assert.deepEqual(plain(decodeMessage(Message.encode(stock))), plain(sent));
    }),
    { numRuns: 200 },
  );
});

test('a record survives encoding', () => {
  const record = {
    key: Buffer.from('/ron-name/x'),
    value: Buffer.alloc(1088, 7),
    received: '2026-01-01T00:00:00.000Z',
  };
  assert.deepEqual(plain(decodeRecord(encodeRecord(record))), plain(record));
});

const isRefused = (error: unknown): boolean => isRonError(error, 'bad_gateway');

test('fuzz DHT message: arbitrary and damaged bytes are decoded within the bounds, or refused', () => {
  const damaged = fc.tuple(message, fc.nat(), fc.integer({ min: 0, max: 255 })).map(([sent, at, byte]) => {
    const frame = Uint8Array.from(body(encodeMessage(sent)));
    if (frame.length > 0) frame[at % frame.length] = byte;
    return frame.subarray(0, at % 3 === 0 ? at % (frame.length + 1) : frame.length);
  });
  fc.assert(
    fc.property(fc.oneof(bytes(0, 512), damaged), (input) => {
      try {
        const decoded = decodeMessage(input);
        assert.ok(decoded.closer.length <= 20 && decoded.providers.length <= 32);
      } catch (error) {
        assert.ok(isRefused(error), String(error));
      }
      try {
        decodeRecord(input);
      } catch (error) {
        assert.ok(isRefused(error), String(error));
      }
    }),
    { numRuns: 2000 },
  );
});

test('of 1 000 closer peers, providers and addresses only the first are kept', () => {
  const many = Array.from({ length: 1000 }, (_, i) => ({ id: Buffer.from(`peer${i}`), addrs: [Buffer.from('a')] }));
  const crowded = { id: Buffer.from('crowded'), addrs: Array.from({ length: 1000 }, () => Buffer.from('a')) };
  const decoded = decodeMessage(
    body(encodeMessage({ type: KAD.GET_PROVIDERS, closer: many, providers: [crowded, ...many] })),
  );
  assert.equal(decoded.closer.length, 20);
  assert.equal(decoded.providers.length, 32);
  assert.equal(decoded.providers[0]?.addrs.length, 16);
});

test('unknown fields are skipped; over-long fields, numbers and groups are refused', () => {
  const known = body(encodeMessage({ type: KAD.FIND_NODE, key: Buffer.from('k') }));
  const unknown = Buffer.from([0x78, 0x05, 0x7a, 0x02, 1, 2, 0x7d, 1, 2, 3, 4, 0x79, 1, 2, 3, 4, 5, 6, 7, 8]);
  assert.equal(decodeMessage(Buffer.concat([unknown, known])).type, KAD.FIND_NODE);
  for (const [name, input] of [
    ['key of 257 bytes', body(encodeMessage({ type: KAD.PING, key: Buffer.alloc(257) }))],
    ['record of 4097 bytes', body(encodeMessage({ type: KAD.PUT_VALUE, record: Buffer.alloc(4097) }))],
    ['number of 11 bytes', Buffer.from([0x08, ...Array<number>(11).fill(0x80)])],
    ['group', Buffer.from([0x7b])],
    ['type 6', Buffer.from([0x08, 0x06])],
    ['length beyond the end', Buffer.from([0x12, 0x7f, 1])],
    ['field 0', Buffer.from([0x02, 0x00])],
    ['a peer without id', Buffer.from([0x42, 0x00])],
  ] as const)
    assert.throws(() => decodeMessage(input), isRefused, name);
});

test('frames arrive in any pieces', () => {
  fc.assert(
    fc.property(fc.array(bytes(0, 300), { maxLength: 5 }), fc.integer({ min: 1, max: 50 }), (sent, step) => {
      const all = Buffer.concat(sent.map((key) => encodeMessage({ type: KAD.PING, record: key })));
      const reader = new FrameReader(1024);
      const got: Uint8Array[] = [];
      for (let at = 0; at < all.length; at += step) got.push(...reader.push(all.subarray(at, at + step)));
      assert.deepEqual(
        got.map((frame) => plain(decodeMessage(frame).record)),
        sent.map(plain),
      );
      assert.ok(reader.isEmpty);
    }),
    { numRuns: 200 },
  );
});

test('a frame that is too long is refused by its length, before its bytes arrive', () => {
  assert.throws(() => new FrameReader(1000).push(Buffer.from([0xe9, 0x07])), isRefused);
  assert.throws(() => new FrameReader(1000).push(Buffer.from([0xff, 0xff, 0xff])), isRefused);
  assert.throws(() => new FrameReader(1 << 21).push(Buffer.from([0x80, 0x80, 0x80])), isRefused);
  assert.deepEqual(new FrameReader(1000).push(Buffer.from([0xe8, 0x07])), []);
});
