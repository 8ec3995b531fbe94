import assert from 'node:assert/strict';
import { copyFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { floorAt, Revocations, type RevocationDocument } from '@ron/auth';
import { askPassport, RevocationWatch } from '@ron/auth/service';
import { tempDirFor } from '@ron/testkit';
import { assertRefusal } from '@ron/testkit/service';
import { startService } from './support.ts';

const NONCE = 'n'.repeat(22);
const PATH = `/v1/passport/revocations?audience=storage&nonce=${NONCE}`;
/** The document in an answer, without verifying it. */
const documentOf = (reply: { json: { signed: string } }): RevocationDocument => JSON.parse(reply.json.signed).document;
const tick = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));

test('an outdated poll returns immediately, a current one is held until there is news', async () => {
  await using service = await startService();
  await service.post('revoke', { subject: 'bob' });
  const first = await service.get(PATH);
  assert.equal(first.status, 200);
  assert.ok(!first.text.includes('bob'), 'it contains no subject');
  const known = new Revocations();
  known.apply(documentOf(first));
  assert.ok(known.floor('bob') > 0 && known.floor('alice') === 0);
  const held = service.get(`${PATH}&after=${documentOf(first).version}`);
  await tick();
  const revoked = await service.post('revoke', { subject: 'alice' });
  const second = await held;
  assert.equal(second.status, 200);
  known.apply(documentOf(second));
  assert.equal(known.floor('alice'), revoked.json.epoch);
  const began_ms = performance.now();
  const nothing = await service.get(`${PATH}&after=${documentOf(second).version}`);
  assert.equal(nothing.status, 200);
  assert.equal(documentOf(nothing), null);
  assert.ok(performance.now() - began_ms > 900, 'it was held for a second');
  assert.equal((await service.get(`${PATH}&after=x`)).status, 400);
});

test('a polling service refuses within two seconds; during an outage it reports the problem, and refuses if configured to', async (t) => {
  const stop = new AbortController();
  const problems: unknown[] = [];
  const socket = join(tempDirFor(t), 'run', 'passport.sock');
  const flags = [`--server.socket=${socket}`];
  let now: Awaited<ReturnType<typeof startService>> | undefined = await startService({ flags });
  const ask = askPassport({ url: `unix:${socket}`, audience: 'storage', keys: now.passport.keys });
  const init = { ask, onProblem: (error: unknown) => problems.push(error) };
  const watch = new RevocationWatch({ ...init, max_age_ms: 2500 });
  assert.match(watch.problem!, /since the start/);
  const running = watch.run(stop.signal).catch(() => undefined);
  while (watch.problem !== undefined) await tick();
  const { json } = await now.post('revoke', { subject: 'alice' });
  const began_ms = performance.now();
  while (watch.floor('alice') !== json.epoch) await tick();
  assert.ok(performance.now() - began_ms < 2000);
  await now[Symbol.asyncDispose]();
  now = undefined;
  const isRefused = (): boolean => {
    try {
      return watch.floor('alice') === 0;
    } catch (error) {
      return (error as { code?: string }).code === 'not_ready';
    }
  };
  while (!isRefused()) await tick();
  assert.equal(problems.length, 1, 'one log line per outage');
  stop.abort();
  await running;
});

test('a drain releases held polls immediately', async () => {
  const service = await startService();
  const { version } = documentOf(await service.get(PATH));
  const held = service.get(`${PATH}&after=${version}`);
  while (!/queue_depth\{queue="holds"\} 1/.test(await service.metrics.text())) await tick();
  const began_ms = performance.now();
  await service.passport.drain();
  assert.equal(documentOf(await held), null);
  assert.ok(performance.now() - began_ms < 900, 'no poll was held for the full second');
  await service[Symbol.asyncDispose]();
});

test('every declared resource is used, and readiness states the source of the keys', async () => {
  await using service = await startService();
  await Promise.all([service.get(PATH), service.post('verify', { token: 'x' })]);
  const unbuilt = service.passport.runtime
    .unbuilt()
    .filter((name) => name !== 'deadline read' && name !== 'deadline write');
  assert.deepEqual(unbuilt, []);
  const ready = await service.get('/readyz');
  assert.equal(ready.status, 200);
  assert.equal(ready.json.facts.capability_keys, 'file');
  assert.match(service.lines.join('\n'), /keys from a file: there is no kms/);
});

for (const how of ['is rolled back', 'is removed']) {
  test(`the document of revocations ${how}: passport reports it and accepts no capability until all are revoked`, async (t) => {
    const dir = tempDirFor(t);
    const file = join(dir, 'data/revocations');
    const older = join(dir, 'older');
    let alice: string;
    let bob: string;
    {
      await using service = await startService({ dir });
      await service.post('revoke', { subject: 'zoe' });
      await copyFile(file, older);
      const ask = { audience: 'storage', scopes: ['storage:get'] };
      alice = (await service.post('issue', { ...ask, subject: 'alice' })).json.token;
      bob = (await service.post('issue', { ...ask, subject: 'bob' })).json.token;
      await service.post('revoke', { subject: 'alice' });
      assert.equal((await service.post('verify', { token: alice })).json.ok, false);
    }
    if (how === 'is removed') await rm(file);
    else await copyFile(older, file);
    {
      await using service = await startService({ dir });
      const root = await service.mint();
      assert.match(service.lines.join('\n'), /"level":"error".*the revocations were rolled back/);
      const ready = await service.get('/readyz');
      assert.deepEqual(ready.json.degraded, ['revocations']);
      for (const token of [alice, bob]) assertRefusal(await service.post('verify', { token }, root), 503, 'not_ready');
      assertRefusal(await service.get(PATH), 503, 'not_ready');
      const ask = { audience: 'storage', scopes: ['storage:get'] };
      assertRefusal(await service.post('issue', ask, root), 503, 'not_ready');
      assertRefusal(await service.post('revoke', { subject: 'alice' }, root), 503, 'not_ready');
    }
    await using service = await startService({ dir });
    const root = await service.mint();
    assertRefusal(await service.get(PATH), 503, 'not_ready');
    assert.equal((await service.post('revoke', { all: true }, root)).status, 200);
    assert.deepEqual((await service.get('/readyz')).json.degraded, []);
    const later = await service.mint({ epoch: floorAt(Date.now() - 1) });
    for (const token of [alice, bob]) assert.equal((await service.post('verify', { token }, later)).json.ok, false);
    assert.equal((await service.get(PATH)).status, 200);
  });
}
