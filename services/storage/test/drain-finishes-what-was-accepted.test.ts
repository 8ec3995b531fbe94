/** SIGTERM under load: accepted requests are answered, and acknowledged objects are stored. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { bytesOf, eventually, MIB, tempDir } from '@ron/testkit';
import { addressOf, authorizationFrom, RawClient, type Reply } from '@ron/testkit/service';
import { keysIn, startProcess } from './process.ts';

test('SIGTERM while clients write and read', async () => {
  await using temp = await tempDir();
  const headers = await authorizationFrom(keysIn(temp.path), 'storage');
  const flags = [`--data_dirs=${join(temp.path, 'data')}`, `--auth.key_file=${keysIn(temp.path)}`];
  const acknowledged: string[] = [];
  const outcomes = new Set<string>();
  {
    await using storage = await startProcess({ flags });
    let refused = false;
    const client = async (first_seed: number): Promise<void> => {
      for (let seed = first_seed; !refused; seed += 8) {
        const bytes = bytesOf(seed % 3 === 0 ? 300_000 : 3000, seed);
        const path = `/o/${addressOf(bytes)}`;
        const put = await outcomeOf(() => storage.send('PUT', path, { body: bytes, headers }));
        if (put === '201') acknowledged.push(path);
        else refused = true;
        outcomes.add(put).add(await outcomeOf(() => storage.send('GET', path)));
      }
    };
    const clients = Array.from({ length: 8 }, (_unused, at) => client(at + 1));
    await eventually('it is under load', () => acknowledged.length >= 30);
    const slow = await RawClient.open(storage.port);
    const bytes = bytesOf(200_000, 999);
    slow.head('PUT', `/o/${addressOf(bytes)}`, { 'Content-Length': bytes.length, ...headers });
    slow.socket.write(bytes.subarray(0, 100_000));
    await eventually('the slow one is accepted', async () => (await storage.metric('http_requests_inflight')) >= 1);
    storage.child.kill('SIGTERM');
    await eventually('it drains', () => refused);
    slow.socket.write(bytes.subarray(100_000));
    await slow.until(/HTTP\/1\.1 201 Created[\s\S]*onnection: close/);
    acknowledged.push(`/o/${addressOf(bytes)}`);
    assert.equal(await storage.exit(), 0);
    await Promise.all(clients);
    // [storage I-6]
    assert.equal(storage.logged('drained')?.['clean'], true);
    assert.equal(storage.logged('drained')?.['requests_cut'], 0);
  }
  for (const outcome of outcomes) assert.match(outcome, /^(?:200|201|503|(?:ECONNRESET, then )?ECONNREFUSED)$/);
  await using storage = await startProcess({ flags });
  for (const path of acknowledged) assert.equal((await storage.send('HEAD', path)).status, 200);
});

/** The system resets a connection that was not accepted when listening ended: from then on the service is stopping. */
async function outcomeOf(send: () => Promise<Reply>): Promise<string> {
  const once = await codeOf(send());
  return once === 'ECONNRESET' ? `ECONNRESET, then ${await codeOf(send())}` : once;
}

async function codeOf(reply: Promise<Reply>): Promise<string> {
  return await reply.then(
    ({ status }) => String(status),
    (error: NodeJS.ErrnoException) => error.code ?? error.message,
  );
}

test('a body that does not end is cut at the drain deadline, and the process exits with success', async () => {
  await using temp = await tempDir();
  const headers = await authorizationFrom(keysIn(temp.path), 'storage');
  const data = join(temp.path, 'data');
  const flags = [`--data_dirs=${data}`, `--auth.key_file=${keysIn(temp.path)}`, '--drain_deadline=1s'];
  await using storage = await startProcess({ flags });
  const client = await RawClient.open(storage.port);
  client.head('POST', '/o', { 'Content-Length': 1_000_000, ...headers });
  client.socket.write('a beginning');
  await eventually('it is accepted', async () => (await storage.metric('http_requests_inflight')) >= 1);
  const begin_ms = performance.now();
  assert.equal(await storage.stop(), 0);
  assert.ok(performance.now() - begin_ms < 5000);
  await client.rest();
  assert.doesNotMatch(client.received, /HTTP\/1\.1 2/);
});

test('an upload that is cut by the end of the drain keeps its received bytes', async () => {
  await using temp = await tempDir();
  const tus = { ...(await authorizationFrom(keysIn(temp.path), 'storage')), 'Tus-Resumable': '1.0.0' };
  const data = join(temp.path, 'data');
  const flags = [`--data_dirs=${data}`, `--auth.key_file=${keysIn(temp.path)}`, '--drain_deadline=1s'];
  const bytes = bytesOf(1_000_000, 5);
  let path: string;
  {
    await using storage = await startProcess({ flags });
    const created = await storage.send('POST', '/uploads', { headers: { ...tus, 'Upload-Length': '1000000' } });
    path = created.headers.location!;
    const client = await RawClient.open(storage.port);
    client.head('PATCH', path, {
      ...tus,
      'Upload-Offset': 0,
      'Content-Type': 'application/offset+octet-stream',
      'Content-Length': bytes.length,
    });
    client.socket.write(bytes.subarray(0, 600_000));
    await eventually('it is accepted', async () => (await storage.metric('http_requests_inflight')) >= 1);
    assert.equal(await storage.stop(), 0);
  }
  await using storage = await startProcess({ flags });
  const head = await storage.send('HEAD', path, { headers: tus });
  assert.equal(head.headers['upload-offset'], '600000');
  const rest = await storage.send('PATCH', path, {
    body: bytes.subarray(600_000),
    headers: { ...tus, 'Upload-Offset': '600000', 'Content-Type': 'application/offset+octet-stream' },
  });
  assert.equal(rest.headers['ron-address'], addressOf(bytes));
});

test('a client that does not read uses up the drain, and tasks that are idle then are not counted as aborted', async () => {
  await using temp = await tempDir();
  const headers = await authorizationFrom(keysIn(temp.path), 'storage');
  const data = join(temp.path, 'data');
  const flags = [`--data_dirs=${data}`, `--auth.key_file=${keysIn(temp.path)}`, '--drain_deadline=1s'];
  await using storage = await startProcess({ flags: [...flags, '--server.body_bytes=64MiB'] });
  const bytes = bytesOf(32 * MIB, 7);
  const path = `/o/${addressOf(bytes)}`;
  assert.equal((await storage.send('PUT', path, { body: bytes, headers })).status, 201);
  const client = await RawClient.open(storage.port);
  client.socket.pause();
  client.head('GET', path, {});
  await eventually('it is answered', async () => (await storage.metric('http_requests_inflight')) === 1);
  storage.child.kill('SIGTERM');
  assert.equal(await storage.exit(), 0);
  const drained = storage.logged('drained');
  assert.equal(drained?.['clean'], false);
  assert.ok(Number(drained?.['tasks_aborted']) <= 1, `${String(drained?.['tasks_aborted'])} tasks were aborted`);
});
