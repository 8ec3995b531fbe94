/**
 * kill -9 of interop between the sync of a message, the sync of its receipt and the answer: the provider's retry gets the first
 * receipt as a duplicate, one message arrives, and the receipt is signed.
 *
 * strace holds the calls on the receipt log, so that the process is killed at one step.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { missing, TEST_TOOLS } from '@ron/custody/testing';
import type { AcceptedWebhook } from '@ron/proto';
import { addressOf } from '@ron/testkit/service';
import { requireReceipts } from '../node/check.ts';
import { Consumer } from '../node/consumer.ts';
import { filesIn, holdCalls, type HeldStep } from '../node/held-calls.ts';
import { TestNode } from '../node/node.ts';
import { addProvider, PATIENT, signed, type SignedDelivery } from '../node/senders.ts';

const TOPIC = 'hooks.github';

async function startNode(t: TestContext): Promise<TestNode> {
  const services = ['kms', 'passport', 'mailbox', 'interop'] as const;
  const node = await TestNode.start(t, { services, flags: { interop: PATIENT } });
  await addProvider(await node.admin(), 'github');
  return node;
}

/** Sends a delivery, and kills interop while it is at a step of its receipt. */
async function crashAt(node: TestNode, step: HeldStep, delivery: SignedDelivery): Promise<void> {
  const { pid } = node.process('interop');
  const held = await holdCalls(pid, await filesIn(join(node.dataOf('interop'), 'receipts', 'segments')), step);
  let answer: number | undefined;
  const sent = post(node, delivery).then(
    ({ status }) => (answer = status),
    () => undefined,
  );
  await held.begun();
  process.kill(pid, 'SIGKILL');
  await Promise.all([sent, held.release(), node.kill('interop')]);
  assert.equal(answer, undefined, 'it was never answered');
}

const post = (node: TestNode, delivery: SignedDelivery) =>
  node.send('POST', `/webhooks/${delivery.provider}`, delivery);

async function retry(node: TestNode, delivery: SignedDelivery, place: 'mailbox' | 'spool'): Promise<AcceptedWebhook> {
  const reply = await post(node, delivery);
  assert.equal(reply.status, 202, reply.text);
  assert.deepEqual([reply.json.duplicate, reply.json.place], [true, place]);
  return reply.json;
}

/** The only message that arrives. */
async function arrivalOf(t: TestContext, node: TestNode): Promise<string> {
  const consumer = new Consumer(t, await node.mailbox(), [TOPIC]);
  await consumer.drainUntil(1);
  const [arrival] = consumer.arrived.values();
  return arrival!.id;
}

const AT_MAILBOX = [
  ['writes', 'between the sync of the message and its receipt'],
  ['syncs', 'between the write and the sync of the receipt'],
  ['synced', 'between the sync of the receipt and the answer'],
] as const;

test('a crash of interop', { skip: missing(TEST_TOOLS.strace) ?? false }, async (t) => {
  const node = await startNode(t);
  // With its receipt the receipt log has a segment.
  const { json: earlier } = await post(node, signed('github', 'earlier'));
  await arrivalOf(t, node);
  const accepted: Pick<AcceptedWebhook, 'receipt' | 'b3'>[] = [earlier];
  await requireReceipts(node, accepted);

  for (const [step, where] of AT_MAILBOX)
    await t.test(`${where}: the retry gets the receipt of the message`, async (part) => {
      const delivery = signed('github', step);
      await crashAt(node, step, delivery);
      const [message] = await (await node.mailbox()).peek(TOPIC);
      await node.start('interop');
      const record = await retry(node, delivery, 'mailbox');
      assert.equal(record.receipt, message!.id);
      assert.equal(await arrivalOf(part, node), message!.id);
      accepted.push(record);
      await requireReceipts(node, accepted);
    });

  await t.test(
    'between the syncs of spool and receipt: the retry gets the receipt of the spooled delivery',
    async (part) => {
      await node.kill('mailbox');
      const delivery = signed('github', 'spooled');
      await crashAt(node, 'writes', delivery);
      await node.start('interop');
      const record = await retry(node, delivery, 'spool');
      await node.start('mailbox');
      assert.equal(await arrivalOf(part, node), record.receipt);
      accepted.push(record);
      await requireReceipts(node, accepted);
    },
  );

  await t.test('the same without a retry: the receipt is written before the delivery is sent', async (part) => {
    await node.kill('mailbox');
    const delivery = signed('github', 'spooled and sent');
    await crashAt(node, 'writes', delivery);
    await node.start('mailbox');
    await node.start('interop');
    const id = await arrivalOf(part, node);
    await requireReceipts(node, [...accepted, { receipt: id, b3: addressOf(delivery.body) }]);
    assert.equal((await retry(node, delivery, 'mailbox')).receipt, id);
  });
});
