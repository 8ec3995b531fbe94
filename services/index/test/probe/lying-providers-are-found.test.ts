/** The proof of one provider, against a real HTTP server that is honest or lies. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Deadline } from '@ron/kernel';
import { GROUP_BYTES } from '@ron/simd';
import { prove, type ProbeResult } from '../../src/probe/prove.ts';
import { answers, endless, honest, ProviderServer, sends, stalls } from './provider-server.ts';

const GROUPS = 5;
const CONTENT = Uint8Array.from({ length: (GROUPS - 1) * GROUP_BYTES + 100 }, (_, at) => (at * 31 + (at >> 9)) & 255);
const PROBE_MS = 10_000;

let server: ProviderServer;
before(async () => (server = await ProviderServer.start()));
after(() => server[Symbol.asyncDispose]());

async function probe(init: { size?: number; url?: string; probe_ms?: number } = {}): Promise<ProbeResult> {
  const address = server.put(CONTENT);
  using deadline = Deadline.after('probe', init.probe_ms ?? PROBE_MS);
  return await prove({ address, url: init.url ?? server.url, size: init.size }, deadline);
}

test('an honest provider is proven, and its size with it', async () => {
  server.handler = honest;
  server.offsets.length = 0;
  const result = await probe();
  assert.equal(result.kind, 'proven');
  assert.equal(result.kind === 'proven' && result.size, CONTENT.length);
  assert.equal(server.offsets.length, 2, 'the last group, which proves the size, then another one');
  assert.ok(server.offsets[0]! > CONTENT.length && server.offsets[1]! < (GROUPS - 1) * GROUP_BYTES);
});

test('with a known size one random group suffices', async () => {
  server.handler = honest;
  server.offsets.length = 0;
  assert.equal((await probe({ size: CONTENT.length })).kind, 'proven');
  assert.equal(server.offsets.length, 1);
  assert.ok(server.offsets[0]! < CONTENT.length);
});

test('objects of one group and of no bytes are proven by one request', async () => {
  server.handler = honest;
  for (const bytes of [new Uint8Array(0), Uint8Array.of(7)]) {
    const address = server.put(bytes);
    using deadline = Deadline.after('probe', PROBE_MS);
    const result = await prove({ address, url: server.url, size: undefined }, deadline);
    assert.deepEqual(result.kind === 'proven' && result.size, bytes.length);
  }
});

const changed = (at: number) => (slice: Buffer) => {
  slice[at < 0 ? slice.length + at : at]! ^= 1;
  return slice;
};

for (const [lie, handler, why] of [
  ['wrong bytes', sends(changed(-1)), 'false_bytes'],
  ['a wrong tree', sends(changed(20)), 'false_bytes'],
  ['a wrong length', sends(changed(0)), 'false_bytes'],
  ['too few bytes', sends((slice) => slice.subarray(0, -1)), 'false_bytes'],
  ['too many bytes', sends((slice) => Buffer.concat([slice, slice])), 'false_bytes'],
  ['no bytes', sends(() => Buffer.alloc(0)), 'false_bytes'],
  ['an endless body', endless, 'false_bytes'],
  ['a declared body beyond the bound', answers(200, { 'content-length': '99999999' }), 'false_bytes'],
  ['another media type', answers(200, { 'content-type': 'text/html' }), 'false_bytes'],
  ['that it has not got the object', answers(404), 'absent'],
  ['a redirect', answers(302, { location: 'http://127.0.0.1:1/' }), 'refused'],
  ['that a capability is needed', answers(401), 'refused'],
] as const) {
  test(`a provider that sends ${lie} fails`, async () => {
    server.handler = handler;
    assert.deepEqual(await probe(), { kind: 'failed', why });
  });
}

test('a provider that has only the last group fails at another one', async () => {
  server.handler = (request, response, slice) =>
    (request.url!.includes('offset=9999') ? honest : sends(changed(-1)))(request, response, slice);
  assert.deepEqual(await probe(), { kind: 'failed', why: 'false_bytes' });
});

test('a provider that sends another object fails', async () => {
  server.handler = honest;
  const address = server.put(CONTENT);
  server.alias(address, CONTENT.subarray(1));
  using deadline = Deadline.after('probe', PROBE_MS);
  const result = await prove({ address, url: server.url, size: undefined }, deadline);
  assert.deepEqual(result, { kind: 'failed', why: 'false_bytes' });
});

test('silence, overload and a closed port prove nothing', async () => {
  server.handler = stalls;
  assert.deepEqual(await probe({ probe_ms: 100 }), { kind: 'unreachable' });
  for (const status of [429, 500, 503]) {
    server.handler = answers(status);
    assert.deepEqual(await probe(), { kind: 'unreachable' });
  }
  server.handler = (_request, response) => void response.destroy();
  assert.deepEqual(await probe(), { kind: 'unreachable' });
  server.handler = (_request, response, slice) => {
    // Declared in full, and cut off.
    response.writeHead(200, { 'content-length': String(slice!.length), 'content-type': 'application/vnd.ron.bao' });
    response.write(slice!.subarray(0, 100), () => response.destroy());
  };
  assert.deepEqual(await probe(), { kind: 'unreachable' });
  assert.deepEqual(await probe({ url: 'http://127.0.0.1:1' }), { kind: 'unreachable' });
});

test('a URL that must not be requested fails without a request', async () => {
  server.handler = honest;
  server.offsets.length = 0;
  const port = new URL(server.url).port;
  for (const url of [
    'http://169.254.169.254',
    'http://metadata.google.internal',
    `http://example.org:${port}`,
    'http://224.0.0.1',
    'http://0.0.0.0',
    `http://[::ffff:127.0.0.1]:${port}`,
    `http://user:pass@127.0.0.1:${port}`,
    `ftp://127.0.0.1:${port}`,
    'file:///etc/passwd',
    'nonsense',
    '',
  ]) {
    assert.deepEqual(await probe({ url }), { kind: 'failed', why: 'url' }, url);
  }
  assert.deepEqual(server.offsets, []);
  assert.equal((await probe({ url: `http://localhost:${port}/` })).kind, 'proven', 'the own storage');
});
