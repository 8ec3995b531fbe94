/** Every route requires its scope before it reads, queues or changes anything. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { scopesOf } from '@ron/proto';
import { assertRefusal } from '@ron/testkit/service';
import { AMNESIA, startService, type TestMailbox } from '../support.ts';

const SCOPES = scopesOf('mailbox');

const TABLE: readonly (readonly [method: string, path: string, scope: (typeof SCOPES)[number], body?: object])[] = [
  ['POST', '/v1/mailbox/send', 'mailbox:send', { messages: [{ topic: 'a', payload: '' }] }],
  ['POST', '/v1/mailbox/a', 'mailbox:send', {}],
  ['POST', '/v1/mailbox/a/receive', 'mailbox:receive', {}],
  ['POST', '/v1/mailbox/a/ack', 'mailbox:receive', { tokens: ['x'] }],
  ['POST', '/v1/mailbox/a/nack', 'mailbox:receive', { tokens: ['x'] }],
  ['POST', '/v1/mailbox/a/extend', 'mailbox:receive', { tokens: ['x'], visibility_ms: 1000 }],
  ['GET', '/v1/mailbox', 'mailbox:read'],
  ['GET', '/v1/mailbox/', 'mailbox:read'],
  ['GET', '/v1/mailbox/a', 'mailbox:read'],
  ['GET', '/v1/mailbox/a/dlq', 'mailbox:read'],
  ['GET', '/v1/mailbox/a/peek', 'mailbox:admin'],
  ['PUT', '/v1/mailbox/a', 'mailbox:admin', {}],
  ['POST', '/v1/mailbox/a/dlq/replay', 'mailbox:admin', {}],
  ['DELETE', '/v1/mailbox/a/dlq', 'mailbox:admin'],
  ['POST', '/admin/prove', 'mailbox:admin'],
  ['GET', '/admin/tasks', 'mailbox:admin'],
  ['GET', '/admin/tasks/x', 'mailbox:admin'],
];

suite('scopes', () => {
  let mailbox: TestMailbox;
  before(async () => {
    mailbox = await startService({ flags: AMNESIA });
  });
  after(() => mailbox[Symbol.asyncDispose]());

  test('a request without its scope is refused, and changes nothing', async () => {
    for (const [method, path, scope, body] of TABLE) {
      const send = (headers: Readonly<Record<string, string>>) =>
        mailbox.send(method, path, {
          headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
          ...(body !== undefined && { body: JSON.stringify(body) }),
        });
      assertRefusal(await send({}), 401, 'unauthorized');
      assertRefusal(await send({ authorization: 'Bearer nonsense' }), 401, 'unauthorized');
      const others = SCOPES.filter((other) => other !== scope);
      assertRefusal(await send(await mailbox.allow({ scopes: others })), 403, 'forbidden');
    }
    assert.deepEqual((await mailbox.call('GET', '/v1/mailbox')).json, { topics: [] });
    assert.deepEqual((await mailbox.call('GET', '/admin/tasks')).json, { tasks: [] });
  });

  test('the scope of a route is enough for it', async () => {
    for (const [method, path, scope, body] of TABLE) {
      const headers = { ...(await mailbox.allow({ scopes: [scope] })), 'content-type': 'application/json' };
      const reply = await mailbox.send(method, path, {
        ...(body === undefined ? { headers: { authorization: headers.authorization } } : { headers }),
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      assert.ok(reply.status < 400 || reply.status === 404, `${method} ${path}: ${reply.text}`);
    }
  });

  test('a capability is refused by its head, before the body is read', async () => {
    const headers = { 'content-length': '1000000000000', 'content-type': 'application/json' };
    for (const path of ['/v1/mailbox/send', '/v1/mailbox/a'])
      assertRefusal(await mailbox.send('POST', path, { headers }), 401, 'unauthorized');
  });

  test('a capability for one topic cannot prove the log or list tasks', async () => {
    const headers = await mailbox.allow({ caveats: ['name ^= a/'] });
    for (const [method, path] of [
      ['POST', '/admin/prove'],
      ['GET', '/admin/tasks'],
      ['GET', '/admin/tasks/x'],
    ] as const)
      assertRefusal(await mailbox.send(method, path, { headers }), 403, 'forbidden');
  });

  test('a capability for small bodies, or for one body, is checked against the decoded body', async () => {
    const small = await mailbox.allow({ caveats: ['bytes <= 10'] });
    assert.equal((await mailbox.send('POST', '/v1/mailbox/b', { headers: small, body: '1234567890' })).status, 201);
    assertRefusal(
      await mailbox.send('POST', '/v1/mailbox/b', { headers: small, body: '12345678901' }),
      403,
      'forbidden',
    );
    const chunked = { ...small, 'transfer-encoding': 'chunked' };
    assertRefusal(
      await mailbox.send('POST', '/v1/mailbox/b', { headers: chunked, body: '12345678901' }),
      403,
      'forbidden',
    );
    const { ledger } = (await mailbox.call('GET', '/v1/mailbox/b')).json;
    assert.equal(ledger.sent, 1);
  });
});
