/** Key material is destroyed only after a waiting period, and every step before it can be undone. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test, type TestContext } from 'node:test';
import { eventually, tempDir } from '@ron/testkit';
import { assertRefusal, type Reply } from '@ron/testkit/service';
import { B3, path, startService, type TestKms } from './support.ts';

const WAIT_MS = 60_000;
const FLAGS = ['--kms.delete_wait=1m'];

describe('destruction', () => {
  let kms: TestKms;
  let dir: Awaited<ReturnType<typeof tempDir>>;
  before(async () => {
    dir = await tempDir();
    kms = await startService({ flags: FLAGS, dir: join(dir.path, 'data') });
  });
  after(async () => {
    await kms[Symbol.asyncDispose]();
    await dir[Symbol.asyncDispose]();
  });

  const on = (kid: string, verb: string, body?: unknown): Promise<Reply> =>
    kms.post(`/keys/${path(kid)}/${verb}`, body);
  const show = async (kid: string) => (await kms.get(`/keys/${path(kid)}`)).json;

  /** A key of two versions, the first of which has wrapped data. */
  async function wrapped(): Promise<{ name: string; unwrap: () => Promise<Reply> }> {
    const kid = await kms.create('aes-256-gcm');
    const { wrapped_b64 } = (await kms.post('/wrap', { kid, plaintext_key_b64: 'YWJj' })).json;
    assert.equal((await on(kid, 'rotate', {})).status, 200);
    return { name: kid.slice(0, -3), unwrap: () => kms.post('/unwrap', { kid, wrapped_b64 }) };
  }

  const setClock = (t: TestContext, now: number): void => t.mock.timers.enable({ apis: ['Date'], now });

  test('raising min_version does not make wrapped data unreadable at once, and can be undone', async (t) => {
    const { name, unwrap } = await wrapped();
    const raised = await on(name, 'policy', { min_version: 2 });
    assert.equal(raised.status, 200, raised.text);
    const { min_version, min_version_unwrap, effective_ms } = raised.json;
    assert.deepEqual([min_version, min_version_unwrap], [2, 1]);
    assert.ok(Math.abs(effective_ms - Date.now() - WAIT_MS) < 30_000);
    assert.equal((await unwrap()).status, 200);
    assert.deepEqual((await on(name, 'policy', { min_version: 1 })).json.effective_ms, undefined);
    const again = (await on(name, 'policy', { min_version: 2 })).json;
    setClock(t, again.effective_ms - 1);
    assert.equal((await unwrap()).status, 200);
    t.mock.timers.reset();
    setClock(t, again.effective_ms);
    assertRefusal(await unwrap(), 409, 'conflict');
    assertRefusal(await on(name, 'policy', { min_version: 1 }), 409, 'conflict');
    const shown = await show(name);
    assert.deepEqual([shown.min_version_unwrap, shown.effective_ms], [2, undefined]);
  });

  test('a capability to rotate destroys nothing', async () => {
    const { name } = await wrapped();
    const rotator = await kms.allow({ scopes: ['kms:rotate'] });
    for (const [verb, body] of [['policy', { min_version: 2 }], ['delete', { whole: true }], ['disable']] as const)
      assertRefusal(await kms.post(`/keys/${path(name)}/${verb}`, body, rotator), 403, 'forbidden');
  });

  test('a disabled key verifies and does nothing else; enabled, it is as before', async () => {
    const kid = await kms.create('ed25519');
    const name = kid.slice(0, -3);
    const { sigs } = (await kms.post('/sign', { kid, payload_b3: B3 })).json;
    assertRefusal(await on(kid, 'disable'), 400, 'validation');
    assert.equal((await on(name, 'disable')).json.state, 'disabled');
    assertRefusal(await kms.post('/sign', { kid, payload_b3: B3 }), 409, 'conflict');
    assertRefusal(await on(name, 'rotate', {}), 409, 'conflict');
    assert.ok((await kms.post('/verify', { kid, payload_b3: B3, sigs })).json.ok);
    assert.equal((await show(name)).state, 'disabled');
    assert.equal((await on(name, 'enable')).json.state, 'enabled');
    assert.equal((await kms.post('/sign', { kid, payload_b3: B3 })).status, 200);
  });

  test('a whole key is deleted explicitly, in two steps, and can be restored between them', async (t) => {
    const kid = await kms.create('ed25519');
    const name = kid.slice(0, -3);
    const { sigs } = (await kms.post('/sign', { kid, payload_b3: B3 })).json;
    assertRefusal(await on(name, 'delete'), 400, 'validation');
    assertRefusal(await on(kid, 'delete', { whole: true }), 400, 'validation');
    const begun = await on(name, 'delete', { whole: true });
    assert.deepEqual([begun.status, begun.json.state, begun.json.kid], [202, 'pending', name], begun.text);
    assertRefusal(await kms.post('/sign', { kid, payload_b3: B3 }), 409, 'conflict');
    assertRefusal(await on(name, 'delete', { whole: true }), 409, 'conflict');
    assertRefusal(await on(name, 'enable'), 409, 'conflict');
    const shown = await show(name);
    assert.deepEqual([shown.state, shown.deletable_ms], ['deleting', begun.json.deletable_ms]);
    assert.equal((await on(name, 'restore')).json.state, 'kept');
    assert.equal((await kms.post('/sign', { kid, payload_b3: B3 })).status, 200);
    const again = await on(name, 'delete', { whole: true });
    setClock(t, again.json.deletable_ms);
    const done = await on(name, 'delete', { whole: true });
    assert.deepEqual([done.status, done.json.state], [200, 'deleted'], done.text);
    assert.equal((await on(name, 'delete', { whole: true })).status, 200, 'a retry gets the same answer');
    assertRefusal(await on(name, 'restore'), 409, 'conflict');
    assertRefusal(await kms.post('/sign', { kid, payload_b3: B3 }), 409, 'conflict');
    const verified = (await kms.post('/verify', { kid, payload_b3: B3, sigs })).json;
    assert.deepEqual([verified.ok, verified.details.reason], [false, 'the key was deleted']);
    const tombstone = await show(name);
    assert.deepEqual([tombstone.state, typeof tombstone.public.pubkey_b64], ['deleted', 'string']);
  });

  test('a clock that is set back an hour delays a deletion, and one that is ahead ends the wait', async (t) => {
    const name = (await kms.create('ed25519')).slice(0, -3);
    const { deletable_ms } = (await on(name, 'delete', { whole: true })).json;
    setClock(t, deletable_ms - WAIT_MS - 3_600_000);
    assertRefusal(await on(name, 'delete', { whole: true }), 409, 'conflict');
    t.mock.timers.reset();
    setClock(t, deletable_ms - 1);
    const early = await on(name, 'delete', { whole: true });
    assertRefusal(early, 409, 'conflict');
    assert.match(early.json.detail, new RegExp(`from ${new Date(deletable_ms).toISOString()}`));
    t.mock.timers.reset();
    setClock(t, deletable_ms);
    assert.equal((await on(name, 'delete', { whole: true })).json.state, 'deleted');
  });

  test('each step is an entry of the audit log', async () => {
    const kid = await kms.create('ed25519');
    const name = kid.slice(0, -3);
    const from = kms.kms.vault.log!.size;
    await on(name, 'policy', { min_version: 1 });
    await on(name, 'disable');
    await on(name, 'enable');
    await on(name, 'delete', { whole: true });
    await on(name, 'delete', { whole: true });
    await on(name, 'restore');
    const log = kms.kms.vault.log!;
    await eventually('all are in the log', () => log.size === from + 6);
    const entries = await Promise.all(
      Array.from({ length: 6 }, async (_, at) => JSON.parse(Buffer.from(await log.entry(from + at)).toString())),
    );
    assert.ok(entries.every((entry: { kid: string }) => entry.kid === name));
    assert.deepEqual(
      entries.map(({ op, result }: { op: string; result: string }) => `${op} ${result}`),
      ['policy ok', 'disable ok', 'enable ok', 'delete ok', 'delete conflict', 'restore ok'],
    );
  });

  test('a restart during the wait keeps the state and the times', async () => {
    const { name, unwrap } = await wrapped();
    const raised = (await on(name, 'policy', { min_version: 2 })).json;
    const key = (await kms.create('ed25519')).slice(0, -3);
    const begun = (await on(key, 'delete', { whole: true })).json;
    await kms[Symbol.asyncDispose]();
    kms = await startService({ flags: FLAGS, dir: kms.dir });
    assert.equal((await show(name)).effective_ms, raised.effective_ms);
    assert.equal((await unwrap()).status, 200);
    const shown = await show(key);
    assert.deepEqual([shown.state, shown.deletable_ms], ['deleting', begun.deletable_ms]);
    assertRefusal(await kms.post('/sign', { kid: key, payload_b3: B3 }), 409, 'conflict');
    assert.equal((await on(key, 'restore')).json.state, 'kept');
  });
});
