/** A signed webhook through a real node: it is accepted, arrives, and has a signed receipt. */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';
import type { SignedReceipt } from '@ron/proto';
import { eventually } from '@ron/testkit';
import { send } from '@ron/testkit/service';
import { TestNode } from './node.ts';
import { PATIENT } from './senders.ts';

const SECRET = 'a secret of enough bytes';

test('a webhook is accepted, arrives once, and its receipt is signed', async (t) => {
  const node = await TestNode.start(t, { flags: { interop: PATIENT } });
  const admin = await node.admin();
  await admin.putProvider('github', { scheme: 'github', secret: SECRET });
  const body = JSON.stringify({ zen: 'Keep it logically awesome.' });
  const signature = createHmac('sha256', SECRET).update(body).digest('hex');
  const headers = { 'content-type': 'application/json', 'x-hub-signature-256': `sha256=${signature}` };
  const post = () => send(node.url, 'POST', '/webhooks/github', { headers, body });
  const first = await post();
  assert.equal(first.status, 202, first.text);
  const accepted = JSON.parse(first.text);
  assert.equal(accepted.duplicate, false);
  assert.equal(accepted.place, 'mailbox');
  assert.equal(first.headers['x-ron-receipt'], accepted.receipt);
  const again = JSON.parse((await post()).text);
  assert.deepEqual([again.duplicate, again.receipt], [true, accepted.receipt]);
  const mailbox = await node.mailbox();
  const messages = await mailbox.receive('hooks.github', { max: 10 });
  assert.deepEqual(
    messages.map(({ id, payload }) => [id, Buffer.from(payload).toString()]),
    [[accepted.receipt, body]],
  );
  let signed: SignedReceipt | undefined;
  await eventually('kms signs the receipt', async () => {
    signed = await admin.receipt(accepted.receipt, { wait: true });
    return signed !== undefined;
  });
  assert.equal(signed!.receipt.id, accepted.receipt);
});

test('a second interop with the same directory does not start, and the first goes on', async (t) => {
  const node = await TestNode.start(t, { services: ['kms', 'interop'] });
  await assert.rejects(node.start('interop'), /interop is in use by another process/);
  assert.equal((await send(node.url, 'GET', '/healthz')).status, 200);
});
