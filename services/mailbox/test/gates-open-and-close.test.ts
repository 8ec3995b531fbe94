/** Each gate of `/readyz` closes with its cause, states it, and opens again. `disk` is in disks-that-fail.test.ts. */
import assert from 'node:assert/strict';
import { readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { realFileSystem, type FileSystem } from '@ron/log';
import { FaultyDisk } from '@ron/log/testing';
import { bytesOf, eventually, KIB, tempDir, unusedPort } from '@ron/testkit';
import { assertRefusal, send, type Reply } from '@ron/testkit/service';
import { startService, type TestMailbox } from './support.ts';

const base = '/v1/mailbox';

interface Ready {
  readonly status: number;
  readonly degraded: readonly string[];
  /** The gates, by name: kind, and the reason of a closed one. */
  readonly gates: Readonly<Record<string, readonly [kind: string, reason: string | undefined]>>;
}

async function readyOf(service: Pick<TestMailbox, 'send'>, path = '/readyz'): Promise<Ready> {
  const { status, json } = await service.send('GET', path);
  const gates = json.gates.map(({ gate, kind, reason, open }: Record<string, string>) => {
    assert.equal(open, reason === undefined, `${gate}`);
    return [gate, [kind, reason]];
  });
  return { status, degraded: json.degraded, gates: Object.fromEntries(gates) };
}

const SMALL_SEGMENTS = ['--mailbox.segment_bytes=4MiB'];

/** Stores messages in two segments; returns how many. */
async function fillSegments(dir: string): Promise<number> {
  await using service = await startService({ dir, flags: SMALL_SEGMENTS });
  const messages = Array.from({ length: 8 }, (_, n) => ({
    topic: 'jobs',
    payload: bytesOf(100 * KIB, n).toString('base64'),
  }));
  for (let n = 0; n < 6; n += 1) assert.equal((await service.call('POST', `${base}/send`, { messages })).status, 200);
  return 48;
}

test('a mailbox without problems has its gates open: two of them soft', async () => {
  await using service = await startService();
  const { status, degraded, gates } = await readyOf(service);
  assert.deepEqual([status, degraded], [200, []]);
  for (const [gate, kind] of [
    ['ledger', 'hard'],
    ['draining', 'hard'],
    ['disk', 'soft'],
    ['topics', 'soft'],
  ] as const)
    assert.deepEqual(gates[gate], [kind, undefined], gate);
});

test('replaying: until the log is read, /readyz and requests get 503 with the progress, and /healthz answers', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const count = await fillSegments(dir);
  const port = await unusedPort();
  const go = Promise.withResolvers<void>();
  // The last segment is opened for writing and read after the others.
  const fs: FileSystem = Object.assign(Object.create(realFileSystem) as FileSystem, {
    open: async (path: string, access: 'read' | 'write') => {
      if (access === 'write' && path.includes('segments')) await go.promise;
      return await realFileSystem.open(path, access);
    },
  });
  const opening = startService({ dir, fs, flags: [...SMALL_SEGMENTS, `--server.bind=127.0.0.1:${port}`] });
  const url = `http://127.0.0.1:${port}`;
  try {
    await eventually('the listener states the progress', async () => {
      const reply = await send(url, 'GET', '/readyz').catch(() => undefined);
      return reply !== undefined && /replaying: \d+ % of the log/.test(reply.text);
    });
    assert.equal((await send(url, 'GET', '/healthz')).status, 200);
    for (const [method, path] of [
      ['GET', '/readyz'],
      ['POST', `${base}/jobs`],
      ['POST', `${base}/jobs/receive`],
    ] as const) {
      const reply = await send(url, method, path);
      assert.equal(reply.status, 503, path);
      assert.ok(Number(reply.headers['retry-after']) > 0, path);
    }
  } finally {
    go.resolve();
  }
  await using service = await opening;
  assert.equal((await readyOf(service)).status, 200);
  assert.equal((await service.call('GET', `${base}/jobs`)).json.ledger.ready, count);
});

test('[mailbox I-8] ledger: a lost segment closes it and refuses requests; once the file is back it is open', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const flags = SMALL_SEGMENTS;
  await fillSegments(dir);
  const [oldest] = (await readdir(join(dir, 'segments'))).toSorted();
  const [from, away] = [join(dir, 'segments', oldest!), join(temp.path, 'away')];
  await rename(from, away);
  {
    await using service = await startService({ dir, flags });
    const { status, gates } = await readyOf(service);
    assert.equal(status, 503);
    assert.equal(gates['ledger']![0], 'hard');
    assert.ok(gates['ledger']![1]!.length > 10, 'it states the difference');
    assert.equal(await service.metric('integrity_fail_total{reason="ledger"}'), 1);
    assertRefusal(await service.call('POST', `${base}/jobs`, {}), 503, 'not_ready');
    assertRefusal(await service.call('POST', `${base}/jobs/receive`, {}), 503, 'not_ready');
    assert.equal((await service.send('GET', '/healthz')).status, 200);
  }
  await rename(away, from);
  await using service = await startService({ dir, flags });
  const { status, gates } = await readyOf(service);
  assert.deepEqual([status, gates['ledger']], [200, ['hard', undefined]]);
  assert.equal(await service.metric('integrity_fail_total{reason="ledger"}'), 0);
});

test('[mailbox I-12] draining: /readyz is 503 and new requests are refused while an accepted send is finished', async () => {
  const disk = new FaultyDisk();
  await using service = await startService({ fs: disk });
  await service.call('POST', `${base}/jobs`, {});
  disk.hold('segments', 'sync');
  const accepted = service.call('POST', `${base}/jobs`, {});
  await eventually('it hangs in the disk', () => disk.waiting > 0);
  const drained = service.mailbox.drain();
  let refused: Ready | undefined;
  await eventually('/readyz shows the drain', async () => {
    refused = await readyOf(service);
    return refused.status === 503;
  });
  assert.equal(refused!.gates['draining']![0], 'hard');
  assert.notEqual(refused!.gates['draining']![1], undefined);
  assertRefusal(await service.call('POST', `${base}/jobs`, {}), 503, 'draining');
  disk.mend();
  assert.equal((await accepted).status, 201);
  await drained;
});

test('[mailbox I-11] topics: closed while a topic is at a limit, open once it has room', async () => {
  await using service = await startService();
  const single = (topic: string, body = 'x'): Promise<Reply> => service.call('POST', `${base}/${topic}`, { body });
  const reasonOf = async (): Promise<string | undefined> => {
    const { status, degraded, gates } = await readyOf(service);
    assert.equal(status, 200);
    const [kind, reason] = gates['topics']!;
    assert.deepEqual([kind, degraded], ['soft', reason === undefined ? [] : ['topics']]);
    return reason;
  };
  for (const topic of ['one', 'two']) await service.call('PUT', `${base}/${topic}`, { max_messages: 1 });
  assert.equal(await reasonOf(), undefined);
  assert.equal((await single('one')).status, 201);
  assert.equal(await reasonOf(), 'one is full', 'before a send is refused');
  assertRefusal(await single('one'), 507, 'storage_full');
  assert.equal((await readyOf(service, '/readyz?lane=topics')).status, 503);
  assert.equal((await single('two')).status, 201);
  assert.equal(await reasonOf(), 'one and 1 more topics are full');
  const { messages } = (await service.call('POST', `${base}/one/receive`, {})).json;
  await service.call('POST', `${base}/one/ack`, { tokens: [messages[0].token] });
  assert.equal(await reasonOf(), 'two is full', 'an ack makes room');
  await service.call('PUT', `${base}/two`, { max_messages: 2 });
  assert.equal(await reasonOf(), undefined, 'a policy makes room');
});
