import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Bench } from '../../test/support.ts';
import { addCaveat } from '../capability/macaroon.ts';
import { decodeToken, encodeToken } from '../capability/token.ts';

/** Many times the size of the caches; each token costs a chain of signatures. */
const DISTINCT = 6000;

async function* variants(bench: Bench, count: number): AsyncGenerator<string> {
  const root = decodeToken(await bench.token());
  assert.ok(root.ok);
  for (let at = 0; at < count; at++) yield encodeToken(addCaveat(root.value, Buffer.from(`expires < ${9e15 + at}`)));
}

test('thousands of distinct tokens, valid and invalid, leave the caches at their bounds', async () => {
  const bench = new Bench({ tokens_max: 500, bad_tokens_max: 50 });
  let checked = 0;
  for await (const token of variants(bench, DISTINCT / 2)) {
    const bytes = Buffer.from(token, 'base64url');
    bytes[bytes.length - 1]! ^= 0x55;
    assert.equal((await bench.check(token)).ok, true);
    assert.equal((await bench.check(bytes.toString('base64url'))).ok, false);
    checked += 2;
    const { tokens, bad_tokens } = bench.checker.sizes;
    assert.ok(tokens <= 500 && bad_tokens <= 50);
  }
  assert.equal(checked, DISTINCT);
  assert.deepEqual(bench.checker.sizes, { tokens: 500, bad_tokens: 50, rates: 0 });
});

test('garbage does not evict valid tokens, and the least recently used valid token is evicted first', async () => {
  const bench = new Bench({ tokens_max: 3, bad_tokens_max: 2 });
  const tokens = await Array.fromAsync(variants(bench, 4));
  const request = (token: string) =>
    ({ authorization: `Bearer ${token}`, scope: 'storage:get', source_ip: '::1' }) as const;
  const known = (token: string): boolean =>
    !(bench.checker.checkHeaders(request(token), AbortSignal.abort()) instanceof Promise);
  for (const token of tokens.slice(0, 3)) await bench.allowed(token);
  for (let at = 0; at < 10; at++) {
    const bytes = Buffer.from(tokens[0]!, 'base64url');
    bytes[bytes.length - 1 - at]! ^= 1;
    await bench.refused(bytes.toString('base64url'));
  }
  await bench.allowed(tokens[0]!);
  await bench.allowed(tokens[3]!);
  assert.equal(known(tokens[0]!), true, 'it was used a moment ago');
  assert.equal(known(tokens[2]!), true);
  assert.equal(known(tokens[3]!), true);
  const gone = bench.checker.checkHeaders(request(tokens[1]!), AbortSignal.abort(new Error('not known')));
  await assert.rejects(async () => gone, /not known/);
});

test('malformed tokens are not cached', async () => {
  const bench = new Bench();
  for (let at = 0; at < 1000; at++) await bench.refused(`garbage${at}`);
  assert.deepEqual(bench.checker.sizes, { tokens: 0, bad_tokens: 0, rates: 0 });
});
