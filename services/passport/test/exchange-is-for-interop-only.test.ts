/** `POST /v1/passport/exchange` over HTTP, and the scope that it needs: no issuer gives it away. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { inspectToken } from '@ron/auth';
import { NEVER } from '@ron/kernel';
import { NODE_SCOPES, scopesOf } from '@ron/proto';
import { assertRefusal, metricIn } from '@ron/testkit/service';
import { startService, type TestPassport } from './support.ts';

const ADDRESS = `b3:${'ab'.repeat(32)}`;
const QUIET = scopesOf('passport').filter((scope) => !NODE_SCOPES.includes(scope));

describe('exchange over HTTP', () => {
  let service: TestPassport;

  before(async () => (service = await startService()));
  after(() => service[Symbol.asyncDispose]());

  const client = (scope: 'interop:put' | 'interop:get' = 'interop:put'): Promise<string> =>
    service.mint({ audience: 'interop', scopes: [scope], subject: 'alice' });

  test('a capability of a client is exchanged, uncached and counted', async () => {
    const token = await client();
    const { status, json, headers } = await service.post('exchange', { token, scope: 'interop:put', address: ADDRESS });
    assert.deepEqual([status, json.ok, headers['cache-control']], [200, true, 'no-store']);
    const said = inspectToken(json.token);
    assert.deepEqual([said.audience, said.scopes, said.subject], ['storage', ['storage:put'], 'alice']);
    assert.equal(json.capability_id, said.capability_id);
    const refused = await service.post('exchange', { token, scope: 'interop:get', address: ADDRESS });
    assert.deepEqual([refused.status, refused.json.ok, refused.json.code], [200, false, 'forbidden']);
    const text = await service.metrics.text();
    assert.equal(metricIn(text, 'passport_exchanged_total{scope="interop:put",result="good"}'), 1);
    assert.equal(metricIn(text, 'passport_exchanged_total{scope="interop:get",result="refused"}'), 1);
  });

  test('a capability without passport:exchange is refused', async () => {
    const all = await service.mint({ scopes: QUIET });
    const body = { token: await client(), scope: 'interop:put', address: ADDRESS };
    assertRefusal(await service.post('exchange', body, all), 403, 'forbidden');
    assertRefusal(await service.post('exchange', body, await client()), 401, 'unauthorized');
  });

  test('malformed requests are refused, and a read needs an address', async () => {
    const token = await client('interop:get');
    const good = { token, scope: 'interop:get', address: ADDRESS };
    const bad = [
      { ...good, scope: 'storage:get' },
      { ...good, scope: 'interop:admin' },
      { ...good, address: 'b3:ab' },
      { ...good, bytes_max: 1 },
      { token, scope: 'interop:get', bytes_max: 1 },
      { token, scope: 'interop:put', bytes_max: -1 },
      { token, scope: 'interop:put' },
      { scope: 'interop:put', address: ADDRESS },
    ];
    for (const body of bad) assertRefusal(await service.post('exchange', body), 400, 'validation');
  });

  test('no issuer gives the scope, for any list in never_issue', async () => {
    await using open = await startService({ flags: ['--passport.never_issue=kms:audit'] });
    for (const each of [service, open]) {
      const ask = { audience: 'passport', scopes: ['passport:exchange'] };
      for (const scopes of [scopesOf('passport'), QUIET, ['passport:issue'] as const]) {
        const reply = await each.post('issue', ask, await each.mint({ scopes }));
        assertRefusal(reply, 403, 'forbidden');
        assert.match(reply.problem!.detail, /passport:exchange is never issued/);
      }
    }
    const issued = await open.post('issue', { audience: 'passport', scopes: ['passport:verify'] });
    assert.equal(issued.status, 201, 'the list does not name it');
  });

  test('no token is logged, and a refusal does not repeat one', async () => {
    const token = await client();
    const { json } = await service.post('exchange', { token, scope: 'interop:put', address: ADDRESS });
    const refused = await service.post('exchange', { token: json.token, scope: 'interop:put', address: ADDRESS });
    assert.equal(refused.json.ok, false);
    for (const secret of [token, json.token as string]) {
      assert.ok(!service.lines.join('').includes(secret));
      assert.ok(!refused.text.includes(secret));
    }
    await service.passport.keys.current('storage', NEVER);
  });
});
