/** The wall clock of the node jumps by an hour: signed times follow it, and duplicates, receipts and the spool do not. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AcceptedWebhook } from '@ron/proto';
import type { Reply } from '@ron/testkit/service';
import { requireReceipts } from '../node/check.ts';
import { MOVABLE, moveClock } from '../node/clock.ts';
import { Consumer } from '../node/consumer.ts';
import { TestNode } from '../node/node.ts';
import { addProvider, PATIENT, signed, type SignedDelivery } from '../node/senders.ts';

const HOUR_MS = 3_600_000;
const SERVICES = ['kms', 'passport', 'mailbox', 'interop'] as const;
const JUMPS = [
  ['forward', HOUR_MS],
  ['back', -HOUR_MS],
] as const;

test('the clock jumps', async (t) => {
  const node = await TestNode.start(t, { services: SERVICES, process: MOVABLE, flags: { interop: PATIENT } });
  const admin = await node.admin();
  for (const scheme of ['github', 'stripe'] as const) await addProvider(admin, scheme);
  const post = (delivery: SignedDelivery): Promise<Reply> =>
    node.send('POST', `/webhooks/${delivery.provider}`, delivery);
  const accepted: AcceptedWebhook[] = [];
  const accepts = async (delivery: SignedDelivery, isDuplicate = false): Promise<string> => {
    const { status, json, text } = await post(delivery);
    assert.equal(status, 202, text);
    assert.equal(json.duplicate, isDuplicate);
    if (!isDuplicate) accepted.push(json);
    return json.receipt;
  };

  for (const [direction, offset_ms] of JUMPS)
    await t.test(`an hour ${direction}: old signatures are refused, duplicates are known, webhooks go on`, async () => {
      await moveClock(node, 0);
      const untimed = signed('github', `untimed ${direction}`);
      const before = signed('stripe', `timed ${direction}`);
      const first = await accepts(untimed);
      await accepts(before);
      await moveClock(node, offset_ms);
      const late = await post(before);
      assert.deepEqual([late.status, late.headers['x-reason']], [401, 'EXPIRED_TOKEN']);
      assert.equal(await accepts(untimed, true), first, 'the duplicate has the first receipt');
      await accepts(signed('stripe', `after ${direction}`, { wall_ms: Date.now() + offset_ms }));
      await requireReceipts(node, accepted);
    });

  await t.test('a delivery that was spooled before the clock is right again arrives after it', async (part) => {
    await moveClock(node, -HOUR_MS);
    await node.kill('mailbox');
    await accepts(signed('github', 'spooled'));
    assert.equal(accepted.at(-1)!.place, 'spool');
    await moveClock(node, 0);
    await node.start('mailbox');
    const consumer = new Consumer(part, await node.mailbox(), ['hooks.github', 'hooks.stripe']);
    await consumer.drainUntil(accepted.length);
    await requireReceipts(node, accepted);
  });
});
