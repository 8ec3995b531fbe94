/** Uploads and reads of packs against servers that lie, refuse, stall or break off. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { EdgeClient, type ReplayableBody } from '@ron/client';
import { nodeFetch } from '@ron/client/node';
import { isRonError, type ErrorCode } from '@ron/kernel';
import { formatAddress } from '@ron/proto';
import { assertSameBytes, bytesOf } from '@ron/testkit';
import { honestSlice, readBody, sendSlice, serve, type Handler } from './fake-server.ts';

const quick = { tries_max: 3, backoff_ms: () => 1 };
const content = bytesOf(300_000);
const address = formatAddress(blake3(content));

async function clientOf(t: TestContext, handler: Handler, init: { stall_ms?: number } = {}): Promise<EdgeClient> {
  const url = await serve(t, handler);
  return new EdgeClient({ url, fetch: nodeFetch(), policy: quick, resume_policy: quick, ...init });
}

const file = (): ReplayableBody => ({
  size: content.length,
  async *read(start) {
    for (let at = start; at < content.length; at += 65_536) yield content.subarray(at, at + 65_536);
  },
});

const is =
  (code: ErrorCode, message: RegExp) =>
  (error: unknown): boolean =>
    isRonError(error, code) && message.test(error.message);

const answer = (response: Parameters<Handler>[1], status: number, body: unknown): unknown => {
  const type = status < 400 ? 'application/json' : 'application/problem+json';
  const text = JSON.stringify(body);
  return response.writeHead(status, { 'Content-Type': type, 'Content-Length': text.length }).end(text);
};

test('a pack is streamed with its expected address, and its progress is reported', async (t) => {
  let received: Uint8Array = new Uint8Array(0);
  const urls: string[] = [];
  const client = await clientOf(t, async (request, response) => {
    urls.push(`${request.method} ${request.url}`);
    received = await readBody(request);
    return answer(response, 201, { name: 'planet', address: formatAddress(blake3(received)) });
  });
  const seen: number[] = [];
  const onProgress = ({ done_bytes }: { done_bytes: number }): void => void seen.push(done_bytes);
  assert.equal((await client.putPack('planet', file(), { expect: address, onProgress })).address, address);
  assertSameBytes(received, content);
  assert.deepEqual(urls, [`PUT /edge/packs/planet?expect=${encodeURIComponent(address)}`]);
  assert.deepEqual(seen, [65_536, 131_072, 196_608, 262_144, 300_000]);
});

test('a server that states another address is detected', async (t) => {
  const client = await clientOf(t, async (request, response) => {
    await readBody(request);
    return answer(response, 201, { name: 'planet', address: formatAddress(blake3('other')) });
  });
  await assert.rejects(client.putPack('planet', file()), is('integrity', /stored other bytes/));
  await assert.rejects(client.putPackFrom('planet', address), is('integrity', /stored other bytes/));
});

test('a refusal before the end of the body is reported with its reason, and not retried', async (t) => {
  let requests = 0;
  const client = await clientOf(t, (_request, response) => {
    requests += 1;
    return answer(response, 400, { code: 'validation', detail: 'planet.pmtiles: the root directory is truncated' });
  });
  await assert.rejects(client.putPack('planet', file()), is('validation', /root directory is truncated/));
  assert.equal(requests, 1);
});

test('a busy server gets a file again, from its beginning; a stream only once', async (t) => {
  const sizes: number[] = [];
  const client = await clientOf(t, async (request, response) => {
    const body = await readBody(request);
    sizes.push(body.length);
    if (sizes.length % 3 !== 0) return answer(response, 429, { code: 'busy', detail: 'busy' });
    return answer(response, 201, { name: 'planet', address: formatAddress(blake3(body)) });
  });
  await client.putPack('planet', file());
  assert.deepEqual(sizes, [300_000, 300_000, 300_000]);
  await assert.rejects(client.putPack('planet', file().read(0)), is('busy', /busy/));
  assert.equal(sizes.length, 4);
});

test('a server that stops reading ends the upload', async (t) => {
  const client = await clientOf(t, () => undefined, { stall_ms: 100 });
  const endless = async function* (): AsyncGenerator<Uint8Array, void, void> {
    for (;;) yield content;
  };
  await assert.rejects(client.putPack('planet', endless()), is('timeout', /no progress for 100 ms/));
});

test('a caller that leaves ends the upload', async (t) => {
  const leaving = new AbortController();
  const client = await clientOf(t, (request) => request.once('data', () => leaving.abort(new Error('left'))));
  await assert.rejects(client.putPack('planet', file(), { signal: leaving.signal }), /left/);
});

test('a pack is read with proofs: a flipped byte is never yielded', async (t) => {
  let isLying = false;
  const client = await clientOf(t, async (request, response) => {
    assert.match(request.url!, /^\/edge\/assets\/pack\/planet\.pmtiles\?proof=bao&/);
    const slice = await honestSlice(content, request.url!);
    if (isLying) slice[slice.length - 1]! ^= 1;
    return sendSlice(response, slice);
  });
  const parts = await Array.fromAsync(client.readPack('planet', address));
  assertSameBytes(Buffer.concat(parts), content);
  isLying = true;
  const yielded: Uint8Array[] = [];
  const reading = async (): Promise<void> => {
    for await (const part of client.readPack('planet', address)) yielded.push(part);
  };
  await assert.rejects(reading(), is('integrity', /did not send the bytes/));
  const bytes = Buffer.concat(yielded);
  assertSameBytes(bytes, content.subarray(0, bytes.length));
  assert.ok(bytes.length < content.length);
});
