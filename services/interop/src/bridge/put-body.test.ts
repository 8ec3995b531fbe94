/** The beginning of a body: whole if it is declared to be small, in bounded memory however it is cut. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { isRonError } from '@ron/kernel';
import { bytesOf, fuzzRuns } from '@ron/testkit';
import { beginningOf, concat, statedAddress, WHOLE_BYTES_MAX } from './put-body.ts';

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as () => void;

async function* pieces(body: Uint8Array, bytes: number) {
  // A piece has memory of its own, as those of a socket do.
  for (let at = 0; at < body.length; at += bytes) yield Uint8Array.prototype.slice.call(body, at, at + bytes);
}
const declared = (body: Uint8Array, bytes: number, length = String(body.length)) => ({
  body_bytes: undefined,
  stream: pieces(body, bytes) as never,
  headers: { 'content-length': length },
});

test('a body of one-byte pieces is kept as one buffer, not as its pieces', async () => {
  const body = bytesOf(60_000);
  gc();
  const before = process.memoryUsage();
  let peak_bytes = 0;
  async function* watched() {
    let at = 0;
    for await (const piece of pieces(body, 1)) {
      yield piece;
      if (++at % 30_000 !== 0) continue;
      gc();
      const { heapUsed, arrayBuffers } = process.memoryUsage();
      peak_bytes = Math.max(peak_bytes, heapUsed + arrayBuffers - before.heapUsed - before.arrayBuffers);
    }
  }
  const beginning = await beginningOf({ ...declared(body, 1), stream: watched() as never });
  assert.ok('whole' in beginning && body.equals(beginning.whole));
  assert.ok(beginning.whole.buffer.byteLength <= 2 * body.length + 16 * 1024);
  // As many views take over 10 MB.
  assert.ok(peak_bytes < 2e6, `${peak_bytes} bytes`);
});

test('a declared body up to the limit is whole, at any cut; a longer or an undeclared one is streamed', async () => {
  for (const length of [0, 1, 2, 65_536, 131_073, WHOLE_BYTES_MAX]) {
    const body = bytesOf(length);
    for (const cut of [1000, 65_536, WHOLE_BYTES_MAX]) {
      const beginning = await beginningOf(declared(body, cut));
      assert.ok('whole' in beginning && Buffer.from(body).equals(beginning.whole), `${length} by ${cut}`);
    }
  }
  const long = bytesOf(WHOLE_BYTES_MAX + 1);
  for (const headers of [{ 'content-length': String(long.length) }, {}]) {
    const beginning = await beginningOf({ ...declared(long, 65_536), headers });
    assert.ok('rest' in beginning && beginning.first.length === 2);
    const all = await Array.fromAsync(concat(beginning.first, beginning.rest));
    assert.ok(Buffer.from(long).equals(Buffer.concat(all)));
  }
});

test('an undeclared body of two pieces or fewer is whole', async () => {
  for (const length of [0, 10, 20]) {
    const body = bytesOf(length);
    const beginning = await beginningOf({ ...declared(body, 20), headers: {} });
    assert.ok('whole' in beginning && Buffer.from(body).equals(beginning.whole));
  }
});

test('a stated address has 64 lower-case hex digits, with or without b3:, and any other header is a bad request', () => {
  const digits = fc.stringMatching(/^[0-9a-f]{64}$/);
  const value = fc.oneof(
    digits,
    digits.map((hex) => `b3:${hex}`),
    fc.tuple(digits, fc.nat(66), fc.string({ minLength: 1, maxLength: 2 })).map(([hex, at, other]) => {
      const address = `b3:${hex}`;
      return address.slice(0, at) + other + address.slice(at + other.length);
    }),
    fc.uint8Array({ maxLength: 80 }).map((bytes) => Buffer.from(bytes).toString('latin1')),
  );
  fc.assert(
    fc.property(fc.array(value, { maxLength: 2 }), (values) => {
      const hex = /^(?:b3:)?([0-9a-f]{64})$/.exec(values[0] ?? '')?.[1];
      if (values.length === 0) assert.equal(statedAddress(values), undefined);
      else if (values.length === 1 && hex !== undefined) assert.equal(statedAddress(values), `b3:${hex}`);
      else
        assert.throws(
          () => statedAddress(values),
          (error) => isRonError(error, 'bad_request'),
        );
    }),
    fuzzRuns(2000),
  );
});
