/** One topic of mailbox is full: its provider gets 503 and is not spooled, the others go on, and it recovers with the room. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eventually } from '@ron/testkit';
import { Consumer } from '../node/consumer.ts';
import { TestNode } from '../node/node.ts';
import { addProvider, PATIENT, signed, type LoadScheme } from '../node/senders.ts';

const SERVICES = ['kms', 'passport', 'mailbox', 'interop'] as const;
const ROOM = 5;

test('a full topic refuses its provider only, spools nothing, and accepts again once messages were received', async (t) => {
  const node = await TestNode.start(t, { services: SERVICES, flags: { interop: PATIENT } });
  const admin = await node.admin();
  for (const scheme of ['github', 'stripe'] as const) await addProvider(admin, scheme);
  const mailbox = await node.mailbox();
  await mailbox.setPolicy('hooks.github', { max_messages: ROOM });
  let n = 0;
  const post = (scheme: LoadScheme) => node.send('POST', `/webhooks/${scheme}`, signed(scheme, `id-${(n += 1)}`));
  for (let at = 0; at < ROOM; at += 1) assert.equal((await post('github')).status, 202);
  for (let at = 0; at < 10; at += 1) {
    const [full, healthy] = await Promise.all([post('github'), post('stripe')]);
    assert.deepEqual([full.status, full.headers['x-reason']], [503, 'DOWNSTREAM_UNAVAILABLE'], full.text);
    assert.match(full.json.detail, /full/);
    assert.ok(full.headers['retry-after'] !== undefined);
    assert.deepEqual([healthy.status, healthy.json.place], [202, 'mailbox']);
  }
  assert.equal(await node.metric('interop', 'spool_deliveries'), 0);
  assert.equal((await node.readyz('bridge')).status, 200, 'a full topic is not an outage');

  const consumer = new Consumer(t, mailbox, ['hooks.github']);
  await consumer.drainUntil(ROOM);
  await eventually('the provider is accepted again', async () => (await post('github')).status === 202);
  assert.equal(await node.metric('interop', 'spool_deliveries'), 0);
  await consumer.drainUntil(ROOM + 1);
});
