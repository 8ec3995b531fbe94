/** The media type that the last authenticated writer stated, on one volume and on several, through everything that follows. */
import assert from 'node:assert/strict';
import { rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { bytesOf, eventually, KIB, tempDir } from '@ron/testkit';
import { addressOf, type Json } from '@ron/testkit/service';
import { AMNESIA, startService, type TestService } from './support.ts';

const SMALL = bytesOf(5000, 1);
const LARGE = bytesOf(300 * KIB, 2);
const pathOf = (bytes: Uint8Array): string => `/o/${addressOf(bytes)}`;

async function typeOf(service: TestService, bytes: Buffer): Promise<string | undefined> {
  const reply = await service.send('GET', pathOf(bytes));
  assert.equal(reply.status, 200, reply.text.slice(0, 200));
  assert.ok(reply.body.equals(bytes));
  const head = await service.send('HEAD', pathOf(bytes));
  assert.equal(head.headers['content-type'], reply.headers['content-type']);
  return reply.headers['content-type'];
}

async function put(service: TestService, bytes: Buffer, type?: string): Promise<number> {
  const headers = { ...(await service.allow()), ...(type !== undefined && { 'content-type': type }) };
  const reply = await service.send('PUT', pathOf(bytes), { body: bytes, headers });
  assert.ok(reply.status < 300, reply.text);
  return reply.status;
}

async function upload(service: TestService, bytes: Buffer, type: string): Promise<void> {
  const reply = await service.send('POST', '/uploads', {
    body: bytes,
    headers: {
      ...(await service.allow()),
      'tus-resumable': '1.0.0',
      'upload-length': String(bytes.length),
      'content-type': 'application/offset+octet-stream',
      'upload-metadata': `filetype ${Buffer.from(type).toString('base64')}`,
    },
  });
  assert.equal(reply.status, 201, reply.text);
}

async function task(service: TestService, kind: string): Promise<void> {
  const { id } = await service.ask('POST', `/admin/${kind}`);
  const state = async (): Promise<string> => (await service.ask('GET', `/admin/tasks/${id}`)).state;
  await eventually(`${kind} ends`, async () => (await state()) !== 'running');
  assert.equal(await state(), 'done');
}

const usedBytes = (service: TestService): number => service.storage.engine.volume.stats().used_bytes;

for (const flags of [[], ['--storage.fast_path=false'], AMNESIA]) {
  describe(`one volume ${flags.join(' ')}`, () => {
    for (const [name, bytes] of Object.entries({ SMALL, LARGE })) {
      test(`${name}: the last stated type wins, and only one small record is written`, async () => {
        await using service = await startService({ flags });
        assert.equal(await put(service, bytes, 'text/plain'), 201);
        assert.equal(await typeOf(service, bytes), 'text/plain');
        // Again, so that the answer comes from memory.
        assert.equal(await typeOf(service, bytes), 'text/plain');
        const used = usedBytes(service);
        assert.equal(await put(service, bytes, 'text/html'), 200);
        assert.ok(usedBytes(service) - used < 8 * KIB, 'the chunks are not written again');
        assert.equal(await typeOf(service, bytes), 'text/html');
        assert.equal(JSON.parse((await service.send('GET', `${pathOf(bytes)}/manifest`)).text).media_type, 'text/html');
        assert.equal(await put(service, bytes), 200);
        assert.equal(await put(service, bytes, 'text/html'), 200);
        assert.equal(await typeOf(service, bytes), 'text/html');
        await upload(service, bytes, 'image/png');
        assert.equal(await typeOf(service, bytes), 'image/png');
      });
    }
  });
}

test('it is kept through a restart, a compaction and a rebuild of the index', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const flags = ['--storage.compact_live_ratio=1', '--storage.segment_bytes=4MiB'];
  const check = async (service: TestService): Promise<void> => {
    assert.equal(await typeOf(service, SMALL), 'text/html');
    assert.equal(await typeOf(service, LARGE), 'text/html');
  };
  {
    await using service = await startService({ dir, flags });
    for (const type of ['text/plain', 'text/html']) {
      for (const bytes of [SMALL, LARGE]) await put(service, bytes, type);
    }
    await check(service);
  }
  {
    await using service = await startService({ dir, flags });
    await check(service);
    await put(service, bytesOf(5 * 1024 * KIB, 3));
    await task(service, 'compact');
    await check(service);
  }
  await rm(join(dir, 'index'), { recursive: true });
  await using service = await startService({ dir, flags });
  await check(service);
});

async function volume(service: TestService, name: string): Promise<Json> {
  const { volumes } = await service.ask('GET', '/admin/volumes');
  return volumes.find((each: { name: string }) => each.name === join(service.dir, name));
}

const SET = ['--durability.replication_factor=3', '--durability.write_min=1', '--storage.cache_bytes=1MiB'];

test('on several volumes, one of which was away when the type changed, each serves the last one', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const dirs = ['a', 'b', 'c'];
  const all = { dir, dirs, flags: [...SET, '--storage.fast_path=false'] };
  {
    await using service = await startService(all);
    for (const bytes of [SMALL, LARGE]) await put(service, bytes, 'text/plain');
    // All three hold it, and all three get the new type.
    for (const bytes of [SMALL, LARGE]) await put(service, bytes, 'text/css');
    await rename(join(dir, 'b'), join(dir, 'away'));
    await eventually('b counts as lost', async () => (await volume(service, 'b')).life === 'lost');
    for (const bytes of [SMALL, LARGE]) await put(service, bytes, 'text/html');
    assert.equal(await typeOf(service, SMALL), 'text/html');
    await rename(join(dir, 'away'), join(dir, 'b'));
    await eventually('b is back', async () => {
      const { life, is_current } = await volume(service, 'b');
      return life === 'active' && is_current === true;
    });
    for (const bytes of [SMALL, LARGE]) assert.equal(await typeOf(service, bytes), 'text/html');
  }
  for (const alone of dirs) {
    // Read the records as each volume holds them.
    await using service = await startService(all);
    const { set } = service.storage.engine.volumes;
    const member = set.members.find(({ name }) => name.endsWith(`/${alone}`))!;
    for (const bytes of [SMALL, LARGE]) {
      const id = Buffer.from(addressOf(bytes).slice(3), 'hex');
      const record = await member.volume.get('object', id, new AbortController().signal);
      assert.equal(record && Buffer.from(record.meta).toString(), 'text/html', alone);
    }
  }
});
