/** Uploads by tus: interrupted uploads are resumed, and the server ends up with exactly the sent bytes. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError } from '@ron/kernel';
import { formatAddress } from '@ron/proto';
import { StorageClient } from '@ron/client';
import { bytesOf } from '@ron/testkit';
import { readBody, serve, TusServer, type TusFaults } from './fake-server.ts';

const MIB = 1024 * 1024;
const content = bytesOf(20 * MIB + 17);
const address = formatAddress(blake3(content));
const quick = { tries_max: 3, backoff_ms: () => 1 };

async function start(t: TestContext, faults: TusFaults = {}): Promise<{ client: StorageClient; server: TusServer }> {
  const server = new TusServer(faults);
  const url = await serve(t, server.handle);
  return { server, client: new StorageClient({ url, policy: quick, resume_policy: quick }) };
}

test('a large body is sent in pieces, with its media type, and nothing is sent twice', async (t) => {
  const { client, server } = await start(t);
  const steps: number[] = [];
  const receipt = await client.put(content, {
    media_type: 'video/mp4',
    onProgress: ({ done_bytes }) => void steps.push(done_bytes),
  });
  assert.deepEqual(receipt, { address, size: content.length, durability: { fsynced: true, copies: 1, target: 1 } });
  assert.equal(server.uploads.get('/uploads/1')!.metadata, `filetype ${btoa('video/mp4')}`);
  assert.equal(server.patches, 3);
  assert.deepEqual(steps, [8 * MIB, 16 * MIB, content.length]);
});

test('after a connection breaks within a piece, the client queries the offset and sends the rest', async (t) => {
  const { client, server } = await start(t, { keep: (patch) => (patch === 2 ? 5000 : patch === 3 ? 0 : undefined) });
  assert.equal((await client.put(content)).address, address);
  assert.equal(server.created, 1);
  assert.equal(server.patches, 5, 'the broken ones, and three that succeeded');
  assert.ok(server.uploads.get('/uploads/1')!.bytes.equals(content));
});

test('a piece that never succeeds is given up after the tries of the policy', async (t) => {
  const { client, server } = await start(t, { keep: (patch) => (patch > 1 ? 0 : undefined) });
  await assert.rejects(client.put(content), (error) => isRonError(error, 'unreachable'));
  assert.equal(server.patches, 1 + quick.tries_max);
});

test('an earlier upload is finished without resending its bytes', async (t) => {
  const { client, server } = await start(t, { keep: (patch) => (patch > 1 ? 0 : undefined) });
  let resume_url = '';
  await assert.rejects(client.put(content, { onUploadUrl: (url) => void (resume_url = url) }));
  server.faults = {};
  server.patches = 0;
  assert.equal((await client.put(content, { resume_url })).address, address);
  assert.equal(server.created, 1);
  assert.equal(server.patches, 2, 'the server had the first of the three pieces');
  server.patches = 0;
  assert.equal(
    (await client.put(content, { resume_url })).address,
    address,
    'the status of a finished upload is only queried',
  );
  assert.equal(server.patches, 0);
});

test('an earlier upload that is gone, of another length, or of other bytes, is restarted', async (t) => {
  const { client, server } = await start(t, { keep: (patch) => (patch === 2 ? 0 : undefined) });
  const other = bytesOf(content.length, 77);
  let resume_url = '';
  const impatient = new StorageClient({ url: client.url, policy: quick, resume_policy: { ...quick, tries_max: 1 } });
  await assert.rejects(impatient.put(other, { onUploadUrl: (url) => void (resume_url = url) }));
  server.faults = {};
  assert.equal(
    (await client.put(content, { resume_url })).address,
    address,
    'the first piece on the server had other bytes',
  );
  assert.equal(server.created, 2);
  assert.equal((await client.put(content.slice(1), { resume_url })).size, content.length - 1);
  assert.equal(server.created, 3);
  assert.equal((await client.put(content, { resume_url: `${client.url}uploads/gone` })).address, address);
  assert.equal(server.created, 4);
});

test('an upload that the server loses half-way is restarted, once', async (t) => {
  let forgotten = 0;
  const { client, server } = await start(t, {
    instead: (request) => {
      if (request.method === 'PATCH' && server.patches === 1 && forgotten++ === 0) server.uploads.clear();
      return false;
    },
  });
  assert.equal((await client.put(content)).address, address);
  assert.equal(server.created, 2);
});

test('a server that states another address is detected', async (t) => {
  const { client } = await start(t, { claim: formatAddress(new Uint8Array(32)) });
  await assert.rejects(client.put(content), (error) => isRonError(error, 'integrity'));
});

test('busy, locked and conflict responses are retried; a refusal is not', async (t) => {
  let answers = [423, 429, 409];
  const { client, server } = await start(t, {
    instead: async (request, response) => {
      if (request.method !== 'PATCH') return false;
      const status = answers.shift();
      if (status === undefined) return false;
      await readBody(request);
      response.writeHead(status).end();
      return true;
    },
  });
  const patient = new StorageClient({ url: client.url, policy: quick, resume_policy: { ...quick, tries_max: 4 } });
  assert.equal((await patient.put(content)).address, address);
  answers = [401];
  await assert.rejects(client.put(content), (error) => isRonError(error, 'unauthorized'));
  assert.deepEqual(answers, []);
  assert.equal(server.created, 2);
});

test('a server without uploads receives the body as one stream, once', async (t) => {
  const requests: string[] = [];
  const url = await serve(t, async (request, response) => {
    requests.push(`${request.method} ${request.url}`);
    if (request.url !== '/o') return response.writeHead(404).end();
    const body = await readBody(request);
    response.writeHead(201, { 'Content-Type': 'application/json' });
    return response.end(JSON.stringify({ address: formatAddress(blake3(body)), size: body.length }));
  });
  const client = new StorageClient({ url, policy: quick });
  assert.equal((await client.put(new Blob([content]))).address, address);
  assert.deepEqual(requests, ['POST /uploads', 'POST /o']);
});

test('a stream that breaks is not sent twice', async (t) => {
  let posts = 0;
  const url = await serve(t, (request) => {
    posts += 1;
    request.once('data', () => request.socket.destroy());
  });
  const client = new StorageClient({ url, policy: quick, resume_policy: quick });
  const stream = ReadableStream.from([content.subarray(0, 9 * MIB), content.subarray(9 * MIB)]);
  await assert.rejects(client.put(stream), (error) => isRonError(error, 'unreachable'));
  assert.equal(posts, 1);
});
