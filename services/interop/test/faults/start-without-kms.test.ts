/** Interop starts while kms is away: it verifies with its sealed secrets and accepts, and kms signs the receipts once it is back. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { requireReceipts } from '../node/check.ts';
import { TestNode } from '../node/node.ts';
import { addProvider, PATIENT, signed } from '../node/senders.ts';

const SERVICES = ['kms', 'passport', 'mailbox', 'interop'] as const;
const SCHEMES = ['github', 'standard'] as const;

test('webhooks are accepted after a start without kms, and their receipts are signed once kms is back', async (t) => {
  const node = await TestNode.start(t, {
    services: SERVICES,
    flags: { interop: [...PATIENT, '--secrets.cache=true'] },
  });
  const admin = await node.admin();
  for (const scheme of SCHEMES) await addProvider(admin, scheme);
  await node.kill('kms');
  await node.restart('interop');
  const accepted: { receipt: string; b3: string }[] = [];
  for (const scheme of SCHEMES) {
    const delivery = signed(scheme, `${scheme}_without_kms`);
    const reply = await node.send('POST', `/webhooks/${scheme}`, delivery);
    assert.equal(reply.status, 202, reply.text);
    accepted.push(reply.json);
    const forged = await node.send('POST', `/webhooks/${scheme}`, { ...delivery, body: '{}' });
    assert.deepEqual([forged.status, forged.headers['x-reason']], [401, 'BAD_ORIGIN']);
  }
  for (const { receipt } of accepted) assert.equal(await admin.receipt(receipt, { wait: true }), undefined);
  await node.start('kms');
  await requireReceipts(node, accepted);
});
