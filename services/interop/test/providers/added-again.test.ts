/** A provider that was removed and added again has new deliveries, even with the ids of its predecessor. */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test, type TestContext } from 'node:test';
import type { AcceptedWebhook } from '@ron/proto';
import { send } from '@ron/testkit/service';
import { TestNode } from '../node/node.ts';

const SECRETS = ['a secret of enough bytes for all', 'b secret of enough bytes for all'] as const;

async function withShop(t: TestContext) {
  const node = await TestNode.start(t, { services: ['kms', 'passport', 'mailbox', 'interop'] });
  const admin = await node.admin();
  const set = (secret: string) =>
    admin.putProvider('shop', {
      scheme: 'standard',
      secret: `whsec_${Buffer.from(secret).toString('base64')}`,
    });
  const post = async (secret: string, id: string, body: string): Promise<AcceptedWebhook> => {
    const time = String(Math.floor(Date.now() / 1000));
    const signature = createHmac('sha256', secret).update(`${id}.${time}.${body}`).digest('base64');
    const headers = { 'webhook-id': id, 'webhook-timestamp': time, 'webhook-signature': `v1,${signature}` };
    const reply = await send(node.url, 'POST', '/webhooks/shop', { body, headers });
    assert.equal(reply.status, 202, reply.text);
    return reply.json as AcceptedWebhook;
  };
  return { node, admin, set, post };
}

test('after a removal the same delivery id is stored again; a replacement and a restart keep duplicates out', async (t) => {
  const { node, admin, set, post } = await withShop(t);
  const [old, next] = SECRETS;
  await set(old);
  const first = await post(old, '1', '{"old":1}');
  await set(next);
  const replaced = await post(next, '1', '{"old":1}');
  assert.deepEqual([replaced.duplicate, replaced.receipt], [true, first.receipt]);
  await node.kill('interop');
  await node.start('interop');
  const restarted = await post(next, '1', '{"old":1}');
  assert.deepEqual([restarted.duplicate, restarted.receipt], [true, first.receipt]);

  await admin.removeProvider('shop');
  await set(next);
  const added = await post(next, '1', '{"new":1}');
  assert.equal(added.duplicate, false);
  const mailbox = await node.mailbox();
  const messages = await mailbox.receive('hooks.shop', { max: 10 });
  assert.deepEqual(
    messages.map(({ payload }) => Buffer.from(payload).toString()),
    ['{"old":1}', '{"new":1}'],
  );
});
