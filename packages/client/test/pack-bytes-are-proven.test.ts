import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test, type TestContext } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { packSource, type PackSource, type PackSourceInit } from '@ron/client';
import { isRonError } from '@ron/kernel';
import { formatAddress } from '@ron/proto';
import { assertSameBytes, bytesOf } from '@ron/testkit';
import fc from 'fast-check';
import { honestSlice, sendSlice, serve } from './fake-server.ts';

const GROUP = 65_536;
const content = bytesOf(9 * GROUP + 1234);
const address = formatAddress(blake3(content));

interface Served {
  readonly source: PackSource;
  readonly requests: string[];
}

async function serveContent(
  t: TestContext,
  change: (slice: Buffer) => Buffer = (slice) => slice,
  init: PackSourceInit = {},
): Promise<Served> {
  const requests: string[] = [];
  const url = await serve(t, async (request, response) => {
    requests.push(request.url!);
    sendSlice(response, change(await honestSlice(content, request.url!)));
  });
  return { source: packSource(`${url}/edge/assets/pack/world.pmtiles`, address, init), requests };
}

test('reads return the bytes of the pack, for any range', async (t) => {
  const { source } = await serveContent(t, undefined, { groups_max: 3 });
  await fc.assert(
    fc.asyncProperty(fc.nat(content.length - 1), fc.nat(3 * GROUP), async (offset, length) => {
      const { data } = await source.getBytes(offset, length);
      assertSameBytes(Buffer.from(data), Buffer.from(content.subarray(offset, offset + length)), `at ${offset}`);
    }),
    { numRuns: 60 },
  );
});

test('the reader receives no byte of an answer with a flipped bit, and the mismatch is reported', async (t) => {
  let flip = 0;
  let mismatches = 0;
  const flipped = (slice: Buffer): Buffer => {
    // After the length of the pack: a slice proves it only if it contains the last group.
    slice[8 + (flip % (slice.length - 8))]! ^= 1 << (flip % 8);
    return slice;
  };
  const { source } = await serveContent(t, flipped, { onMismatch: () => (mismatches += 1), deadline_ms: 20_000 });
  const positions = fc.sample(fc.nat(GROUP + 4 * 64 - 1), 25);
  for (flip of positions) {
    await assert.rejects(source.getBytes(GROUP, 100), (error) => isRonError(error, 'integrity'), `bit ${flip}`);
  }
  assert.equal(mismatches, positions.length);
});

test('a mismatch is not kept: the next read requests the group again', async (t) => {
  let isDamaged = true;
  const change = (slice: Buffer): Buffer => {
    if (isDamaged) slice[slice.length - 1]! ^= 1;
    return slice;
  };
  const { source } = await serveContent(t, change);
  await assert.rejects(source.getBytes(0, 100), (error) => isRonError(error, 'integrity'));
  isDamaged = false;
  const { data } = await source.getBytes(0, 100);
  assertSameBytes(Buffer.from(data), Buffer.from(content.subarray(0, 100)), 'after the damage');
});

test('concurrent and repeated reads of a group share one request', async (t) => {
  const { source, requests } = await serveContent(t);
  await Promise.all([source.getBytes(10, 20), source.getBytes(500, 20), source.getBytes(GROUP - 10, 20)]);
  await source.getBytes(0, 2 * GROUP);
  assert.deepEqual(requests, [
    `/edge/assets/pack/world.pmtiles?proof=bao&offset=0&length=${GROUP}`,
    `/edge/assets/pack/world.pmtiles?proof=bao&offset=${GROUP}&length=${GROUP}`,
  ]);
});

test('groups beyond the limit are requested again, so memory is bounded', async (t) => {
  const { source, requests } = await serveContent(t, undefined, { groups_max: 2 });
  for (const group of [0, 1, 2, 2, 1, 0]) await source.getBytes(group * GROUP, 1);
  assert.equal(requests.length, 4);
  // The least recently used one is dropped: 0 stays.
  for (const group of [0, 3, 0, 4, 0]) await source.getBytes(group * GROUP, 1);
  assert.equal(requests.length, 6);
});

test('an aborted read ends at once, and other readers of its group get their bytes', async (t) => {
  let release: (() => void) | undefined;
  const gate = new Promise<void>((resolve) => (release = resolve));
  const arrived = new EventTarget();
  const url = await serve(t, async (request, response) => {
    arrived.dispatchEvent(new Event('request'));
    await gate;
    sendSlice(response, await honestSlice(content, request.url!));
  });
  const source = packSource(`${url}/world.pmtiles`, address);
  const leaving = new AbortController();
  const sent = once(arrived, 'request');
  const left = source.getBytes(0, 10, leaving.signal);
  const stays = source.getBytes(0, 10);
  await sent;
  leaving.abort(new Error('moved away'));
  await assert.rejects(left, /moved away/);
  release!();
  assert.equal((await stays).data.byteLength, 10);
});

test('a read that no pack needs is refused without a request', async (t) => {
  const { source, requests } = await serveContent(t);
  for (const [offset, length] of [
    [0, 2 ** 32],
    [-1, 10],
    [Number.NaN, 10],
    [0, -1],
  ] as const)
    await assert.rejects(source.getBytes(offset, length), (error) => isRonError(error, 'validation'));
  assert.deepEqual(requests, []);
});

test('verified bytes are counted once for each answer', async (t) => {
  const counts: number[] = [];
  const { source } = await serveContent(t, undefined, { onVerified: (bytes) => counts.push(bytes) });
  await source.getBytes(0, 10);
  await source.getBytes(5, 10);
  await source.getBytes(content.length - 1, 10);
  assert.deepEqual(counts, [GROUP, GROUP + 1234]);
});
