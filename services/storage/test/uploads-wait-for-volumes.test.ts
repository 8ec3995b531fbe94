/** An upload whose journal or chunks are on directories that are away waits for them: it is never rewound, reset or expired. */
import assert from 'node:assert/strict';
import { readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { bytesOf, eventually, MIB, tempDir } from '@ron/testkit';
import { addressOf, assertRefusal, type Json, type Reply } from '@ron/testkit/service';
import { startService, type TestService } from './support.ts';

const DIRS = ['d0', 'd1', 'd2', 'd3'];
const PAIRS = DIRS.flatMap((one, index) => DIRS.slice(index + 1).map((other) => [one, other] as const));
const FLAGS = ['--durability.replication_factor=2', '--durability.repair_interval=1h', '--uploads.expiry=1h'];
const TUS = { 'Tus-Resumable': '1.0.0' };
const BYTES = bytesOf(7 * MIB, 5);
const SENT = 6 * MIB;

type Sends = Pick<TestService, 'send' | 'allow' | 'ask'>;

async function ask(service: Sends, method: string, path: string, init: { body?: Buffer; offset?: number } = {}) {
  const headers = {
    ...TUS,
    ...(await service.allow()),
    ...(init.offset !== undefined && {
      'Upload-Offset': String(init.offset),
      'Content-Type': 'application/offset+octet-stream',
    }),
  };
  return await service.send(method, path, { headers, ...(init.body && { body: init.body }) });
}

/** Creates an upload and sends most of it; where it is. */
async function begin(service: Sends): Promise<string> {
  const headers = { ...TUS, ...(await service.allow()), 'Upload-Length': String(BYTES.length) };
  const created = await service.send('POST', '/uploads', { headers });
  assert.equal(created.status, 201, created.text);
  const path = created.headers.location!;
  const sent = await ask(service, 'PATCH', path, { body: BYTES.subarray(0, SENT), offset: 0 });
  assert.equal(sent.headers['upload-offset'], String(SENT), sent.text);
  return path;
}

async function assertWaits(service: Sends, path: string, names: readonly string[]): Promise<void> {
  const refusals: Reply[] = [
    await ask(service, 'GET', path),
    await ask(service, 'PATCH', path, { body: BYTES.subarray(SENT), offset: SENT }),
  ];
  for (const refusal of refusals) {
    assertRefusal(refusal, 503, 'not_ready');
    for (const name of names) assert.ok(refusal.text.includes(name), refusal.text);
  }
  const head = await ask(service, 'HEAD', path);
  assert.deepEqual([head.status, head.headers['upload-offset']], [503, undefined]);
  assert.ok(Number(head.headers['retry-after']) > 0);
}

async function assertAt(service: Sends, path: string, offset: number): Promise<void> {
  const head = await ask(service, 'HEAD', path);
  assert.deepEqual([head.status, head.headers['upload-offset']], [200, String(offset)], head.text);
}

async function assertFinishes(service: Sends, path: string): Promise<void> {
  await assertAt(service, path, SENT);
  const last = await ask(service, 'PATCH', path, { body: BYTES.subarray(SENT), offset: SENT });
  assert.equal(last.status, 204, last.text);
  const reply = await service.send('GET', `/o/${addressOf(BYTES)}`);
  assert.ok(reply.status === 200 && reply.body.equals(BYTES), reply.text.slice(0, 200));
}

async function move(base: string, names: readonly string[], to: 'away' | 'back'): Promise<void> {
  for (const name of names) {
    const [here, away] = [join(base, name), join(base, `${name}.away`)];
    await (to === 'away' ? rename(here, away) : rename(away, here));
  }
}

async function noticed(service: TestService, count: number): Promise<void> {
  await eventually('it is noticed', async () => {
    const { volumes } = await service.ask('GET', '/admin/volumes');
    return volumes.filter((each: Json) => each.life === 'lost').length === count;
  });
}

describe('two of four directories are away', () => {
  test('at the start, or since: the upload waits, and goes on where it was when they are back', async () => {
    await using temp = await tempDir();
    const init = { dir: temp.path, dirs: DIRS, flags: FLAGS };
    let path = '';
    {
      await using service = await startService(init);
      path = await begin(service);
    }
    for (const pair of PAIRS) {
      await move(temp.path, pair, 'away');
      await using service = await startService(init);
      await assertWaits(service, path, pair);
      await move(temp.path, pair, 'back');
      await noticed(service, 0);
      await assertAt(service, path, SENT);
    }
    await using service = await startService(init);
    for (const pair of PAIRS) {
      await move(temp.path, pair, 'away');
      await noticed(service, 2);
      // Repair made more copies in the rounds before: all of it may be readable by now.
      const { status, headers } = await ask(service, 'HEAD', path);
      if (status === 200) assert.equal(headers['upload-offset'], String(SENT));
      else await assertWaits(service, path, pair);
      await service.storage.engine.uploads.expire();
      await move(temp.path, pair, 'back');
      await noticed(service, 0);
      await assertAt(service, path, SENT);
    }
    await assertFinishes(service, path);
  });

  test('and are given up: the upload begins again, or is gone', async () => {
    await using service = await startService({ dirs: DIRS, flags: FLAGS });
    const path = await begin(service);
    await move(service.dir, ['d1', 'd2'], 'away');
    await noticed(service, 2);
    await assertWaits(service, path, ['d1', 'd2']);
    for (const name of ['d1', 'd2']) {
      await service.ask('POST', `/admin/volumes/lose?volume=${encodeURIComponent(join(service.dir, name))}`);
    }
    await assertAt(service, path, 0);
  });
});

test('with one directory away an upload goes on, at the start and at run time', async () => {
  for (const name of DIRS) {
    await using temp = await tempDir();
    const init = { dir: temp.path, dirs: DIRS, flags: FLAGS };
    let path = '';
    {
      await using service = await startService(init);
      path = await begin(service);
      await move(temp.path, [name], 'away');
      await noticed(service, 1);
      await assertAt(service, path, SENT);
    }
    await using service = await startService(init);
    await assertFinishes(service, path);
  }
});

test('a journal that was written while directories were away does not give way to an older copy of it', async () => {
  await using temp = await tempDir();
  const init = { dir: temp.path, dirs: DIRS, flags: FLAGS };
  let path = '';
  {
    await using service = await startService(init);
    const headers = { ...TUS, ...(await service.allow()), 'Upload-Length': String(BYTES.length) };
    path = (await service.send('POST', '/uploads', { headers })).headers.location!;
    // Whichever pair has the journal: the rest of the bytes comes when it is away, so that its copies are old ones.
    const holds = await Promise.all(DIRS.map((name) => readdir(join(temp.path, name, 'uploads'))));
    const old = DIRS.filter((_, index) => holds[index]!.length > 0);
    assert.equal(old.length, 2);
    await move(temp.path, old, 'away');
    await noticed(service, 2);
    const sent = await ask(service, 'PATCH', path, { body: BYTES.subarray(0, SENT), offset: 0 });
    assert.equal(sent.headers['upload-offset'], String(SENT), sent.text);
    await service[Symbol.asyncDispose]();
    await move(temp.path, old, 'back');
    const young = DIRS.filter((name) => !old.includes(name));
    await move(temp.path, young, 'away');
    await using again = await startService(init);
    await assertWaits(again, path, young);
    await move(temp.path, young, 'back');
    await noticed(again, 0);
    await assertFinishes(again, path);
  }
});
