/** A capability is checked before a request uses anything of the service. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { capability, startService } from '../support.ts';
import { eventually } from '@ron/testkit';
import { RawClient } from '@ron/testkit/service';
import type { Reply } from '@ron/testkit/service';
import { assertCounted, assertRefusal } from './refusals.ts';

test('a missing or malformed capability gets 401, one without the scope gets 403', async () => {
  await using service = await startService();
  const crash = (headers: Record<string, string>): Promise<Reply> => service.send('GET', '/admin/refuse', { headers });
  const none = await crash({});
  assertRefusal(none, 401, 'unauthorized');
  assert.equal(none.headers['www-authenticate'], 'Bearer realm="ron"');
  assertRefusal(await crash({ authorization: 'Bearer nonsense' }), 401, 'unauthorized');
  assertRefusal(await crash(capability({ scopes: ['storage:put'] })), 403, 'forbidden');
  await assertCounted(service, 'rejected_total{reason="unauthorized"}', 2);
  await assertCounted(service, 'rejected_total{reason="forbidden"}');
});

test('a capability is checked before the body is read and before any queue', async () => {
  await using service = await startService(['--notes.workers=1', '--notes.queue=1']);
  const held = [service.send('GET', '/slow/300'), service.send('GET', '/slow/300')];
  await eventually('the queue is full', async () => (await service.metric('queue_depth{queue="work"}')) === 1);
  const client = await RawClient.open(service.port);
  client.write('PUT /notes/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n');
  // [index I-11]
  await client.until(/HTTP\/1\.1 401/);
  client.destroy();
  await Promise.all(held);
});

test('the object in the path is compared with the caveats', async () => {
  await using service = await startService();
  const headers = capability({ caveats: [{ key: 'name', prefix: 'team-' }] });
  assert.equal((await service.send('PUT', '/notes/team-a', { body: 'x', headers })).status, 201);
  assertRefusal(await service.send('PUT', '/notes/other', { body: 'x', headers }), 403, 'forbidden');
});
