import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { SERVICES } from '@ron/proto';
import { signal, TestClock } from '../../test/support.ts';
import { mint } from '../capability/capability.ts';
import { Checker } from '../checker/checker.ts';
import { deriveAudienceKey, KeyRing } from './key-ring.ts';
import { FileKeySource, MemoryKeySource } from './key-source.ts';
import type { KeySource } from './key-source.ts';

async function inDirectory(run: (path: string) => Promise<void>): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'ron-keys-'));
  try {
    await run(join(directory, 'keys'));
  } finally {
    await rm(directory, { recursive: true });
  }
}

const CLAIM = { audience: 'storage', scopes: ['storage:get'], ttl_ms: 60_000 } as const;

async function accepts(
  keys: KeySource,
  token: string,
  checker = new Checker({ audience: 'storage', keys }),
): Promise<boolean> {
  const request = { authorization: `Bearer ${token}`, scope: 'storage:get', source_ip: '::1' } as const;
  return (await checker.checkHeaders(request, signal)).ok;
}

const hex = (bytes: Uint8Array | undefined): string => Buffer.from(bytes ?? []).toString('hex');

test('audience keys differ from each other and from the root, and are the same every time', () => {
  const root = new Uint8Array(32).fill(3);
  const keys = SERVICES.map((service) => hex(deriveAudienceKey(root, service)));
  assert.equal(new Set([...keys, hex(root)]).size, SERVICES.length + 1);
  assert.deepEqual(
    keys,
    SERVICES.map((service) => hex(deriveAudienceKey(root, service))),
  );
  assert.notEqual(hex(deriveAudienceKey(new Uint8Array(32).fill(4), 'storage')), keys[0]);
});

test('the derivation is the published one: HKDF-SHA256, empty salt, the audience in the info', () => {
  // Computed with OpenSSL: openssl kdf -keylen 32 -kdfopt digest:SHA256 -kdfopt hexkey:0303..03 -kdfopt info:... HKDF
  const root = new Uint8Array(32).fill(3);
  assert.equal(
    hex(deriveAudienceKey(root, 'storage')),
    '3b3ef051327279de03135db141af915661c41c1dc056d2da68d6cd85518b30d8',
  );
});

test('the keys of one audience check and mint for it, and for no other', async () => {
  await using root = new MemoryKeySource();
  await using own = new MemoryKeySource(root.audienceSet('storage'));
  assert.equal(await accepts(own, (await mint(root, CLAIM, signal)).token), true);
  assert.equal(await accepts(root, (await mint(own, CLAIM, signal)).token), true);
  await assert.rejects(mint(own, { audience: 'kms', scopes: ['kms:sign'], ttl_ms: 1000 }, signal), {
    code: 'forbidden',
    message: 'this source has keys of storage only, not of kms',
  });
  const { key_id } = await own.current('storage', signal);
  assert.equal(await own.key('kms', key_id, signal), undefined);
  assert.throws(() => own.audienceSet('kms'), { code: 'forbidden' });
});

test('closing zeroes and removes every key', async () => {
  for (const keys of [new MemoryKeySource(), new MemoryKeySource(new MemoryKeySource().audienceSet('storage'))]) {
    const current = await keys.current('storage', signal);
    const { key } = current;
    assert.ok(key.some((byte) => byte !== 0));
    const before = keys.generation;
    await keys.close();
    await keys.close();
    assert.ok(key.every((byte) => byte === 0));
    assert.notEqual(keys.generation, before);
    assert.equal(await keys.key('storage', current.key_id, signal), undefined);
    await assert.rejects(keys.current('storage', signal), { code: 'closed' });
  }
});

test('a ring keeps common keys, zeroes removed and duplicate ones, and changes its generation only when a key is removed', () => {
  const secret = (fill: number): Uint8Array => new Uint8Array(32).fill(fill);
  const [first, second, twice] = [secret(1), secret(2), secret(1)];
  const ring = new KeyRing({ audience: 'root', keys: [{ key_id: 'a', secret: first }] });
  const derived = ring.key('storage', 'a')!;
  const kept = hex(derived);
  ring.adopt({
    audience: 'root',
    keys: [
      { key_id: 'b', secret: second },
      { key_id: 'a', secret: twice },
    ],
  });
  assert.equal(ring.generation, 0);
  assert.equal(hex(ring.key('storage', 'a')), kept);
  assert.equal(hex(derived), kept, 'a key in use was zeroed');
  assert.equal(hex(twice), hex(secret(0)), 'the copy was kept');
  assert.equal(ring.current('storage').key_id, 'b');
  const other = ring.key('storage', 'b')!;
  ring.adopt({ audience: 'root', keys: [{ key_id: 'b', secret: secret(2) }] });
  assert.equal(ring.generation, 1);
  assert.equal(ring.key('storage', 'a'), undefined);
  assert.equal(hex(first) + hex(derived), hex(secret(0)).repeat(2));
  assert.notEqual(hex(other), hex(secret(0)));
  // The same id with another secret is another key.
  ring.adopt({ audience: 'root', keys: [{ key_id: 'b', secret: secret(9) }] });
  assert.equal(ring.generation, 2);
  assert.equal(hex(other), hex(secret(0)));
  assert.notEqual(hex(ring.key('storage', 'b')), hex(other));
});

test('a ring refuses a set that is empty, too large, ambiguous or short', () => {
  const key = (key_id: string, size = 32) => ({ key_id, secret: new Uint8Array(size).fill(1) });
  const sets = [[], Array.from({ length: 9 }, (_, at) => key(`k${at}`)), [key('a'), key('a')], [key('a', 31)]];
  for (const keys of sets) assert.throws(() => new KeyRing({ audience: 'root', keys }), /assertion failed/);
});

test('a file source creates its file once and reads the same keys again', async () => {
  await inDirectory(async (path) => {
    await assert.rejects(FileKeySource.open({ path, create: false }, signal), {
      code: 'not_ready',
      message: `there is no key file at ${path}`,
    });
    const first = await FileKeySource.open({ path }, signal);
    const { token } = await mint(first, CLAIM, signal);
    await first.close();
    await using second = await FileKeySource.open({ path }, signal);
    assert.equal(await accepts(second, token), true);
    assert.equal(await accepts(first, token), false);
  });
});

test('processes that start at the same moment end up with one key', async () => {
  await inDirectory(async (path) => {
    const children = Array.from({ length: 3 }, () => fork(new URL('../../test/open-key-file.ts', import.meta.url)));
    try {
      await Promise.all(children.map((child) => once(child, 'message')));
      const answers = children.map((child) => once(child, 'message'));
      for (const child of children) child.send({ path, rounds: 20 });
      const seen = (await Promise.all(answers)).map(([keys]) => keys as string[]);
      assert.equal(seen[0]?.length, 20);
      for (const keys of seen) assert.deepEqual(keys, seen[0]);
      assert.equal(new Set(seen[0]).size, 20);
      const left = await readdir(join(path, '..'));
      assert.deepEqual(
        left.filter((name) => !/^keys\d+$/.test(name)),
        [],
      );
    } finally {
      await Promise.all(children.map(ended));
    }
  });
});

test('rotation keeps old capabilities valid until their key is retired, here and in other processes', async () => {
  using clock = new TestClock();
  await inDirectory(async (path) => {
    await using issuer = await FileKeySource.open({ path }, signal);
    await using service = await FileKeySource.open({ path }, signal);
    const checker = new Checker({ audience: 'storage', keys: service });
    const [oldId = ''] = issuer.keyIds;
    const old = (await mint(issuer, CLAIM, signal)).token;
    assert.equal(await accepts(service, old, checker), true);
    const newId = await issuer.rotate(signal);
    assert.deepEqual(issuer.keyIds, [newId, oldId]);
    const fresh = (await mint(issuer, CLAIM, signal)).token;
    clock.now_ms += 999;
    assert.equal(
      await accepts(service, fresh, checker),
      false,
      'unknown key ids must not trigger a read of the file each',
    );
    clock.now_ms += 1;
    assert.equal(await accepts(service, fresh, checker), true);
    assert.equal(await accepts(service, old, checker), true);
    await issuer.retire(oldId, signal);
    assert.equal(await accepts(issuer, old), false);
    await service.reload(signal);
    assert.equal(await accepts(service, old, checker), false, 'the cache outlived the key');
    assert.equal(await accepts(service, fresh, checker), true);
  });
});

test('a failed rotation or retirement states the reason and changes nothing', async () => {
  await inDirectory(async (path) => {
    await using keys = await FileKeySource.open({ path }, signal);
    const [current = ''] = keys.keyIds;
    const before = await readFile(path);
    await assert.rejects(keys.retire(current, signal), {
      code: 'conflict',
      message: `${current} is the current key: rotate first`,
    });
    await assert.rejects(keys.retire('nope', signal), { code: 'not_found' });
    assert.deepEqual(await readFile(path), before);
    for (let count = 1; count < 8; count++) await keys.rotate(signal);
    await assert.rejects(keys.rotate(signal), { code: 'conflict', message: /retire a key first/ });
    assert.equal(keys.keyIds.length, 8);
    await assert.rejects(keys.rotate(AbortSignal.abort(new Error('stop'))), /stop/);
  });
});

test('a damaged or missing file at reload changes nothing', async () => {
  await inDirectory(async (path) => {
    await using keys = await FileKeySource.open({ path }, signal);
    const { token } = await mint(keys, CLAIM, signal);
    const generation = keys.generation;
    await writeFile(path, 'garbage');
    await assert.rejects(keys.reload(signal), { code: 'not_ready', message: /damaged/ });
    await rm(path);
    await assert.rejects(keys.reload(signal), { code: 'not_ready', message: /is missing/ });
    assert.equal(await accepts(keys, token), true);
    assert.equal(keys.generation, generation);
  });
});

test('a source that closes while it reads the file stays closed', async () => {
  await inDirectory(async (path) => {
    const keys = await FileKeySource.open({ path }, signal);
    const reading = keys.reload(signal);
    await keys.close();
    await assert.rejects(reading, { code: 'closed' });
    assert.deepEqual(keys.keyIds, []);
  });
});

test('the file for one service checks its own capabilities and mints for no other', async () => {
  await inDirectory(async (path) => {
    await using root = await FileKeySource.open({ path }, signal);
    const own = `${path}.storage`;
    await root.writeAudienceFile(own, 'storage', signal);
    await root.rotate(signal);
    await root.writeAudienceFile(own, 'storage', signal);
    await using service = await FileKeySource.open({ path: own, create: false }, signal);
    assert.deepEqual(service.keyIds, root.keyIds);
    assert.equal(await accepts(service, (await mint(root, CLAIM, signal)).token), true);
    await assert.rejects(service.current('kms', signal), { code: 'forbidden' });
    const secrets = await readFile(path, 'latin1');
    for (const [secret] of (await readFile(own, 'latin1')).matchAll(/[0-9a-f]{64}/g))
      assert.ok(!secrets.includes(secret));
  });
});

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null) return;
  const exit = once(child, 'exit');
  child.disconnect();
  await exit;
}
