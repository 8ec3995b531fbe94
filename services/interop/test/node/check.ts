/** The promises of a node about accepted deliveries: each arrived once and in order, and has a signed receipt. */
import assert from 'node:assert/strict';
import type { KmsClient } from '@ron/client';
import { checkReceipt, type ReceiptKey } from '@ron/client/webhook-receipt';
import type { SignedReceipt } from '@ron/proto';
import { eventually } from '@ron/testkit';
import type { Arrival, Consumer } from './consumer.ts';
import type { AcceptedRecord, Load } from './load.ts';
import type { TestNode } from './node.ts';

const READERS = 16;

/** Waits until the spool is empty and mailbox is drained, then checks every delivery. All services must run. */
export async function checkAccepted(node: TestNode, load: Load, consumer: Consumer): Promise<void> {
  await eventually('the spool is empty', async () => (await node.metric('interop', 'spool_deliveries')) === 0);
  await consumer.drain();
  const byBody = requireArrivals(load.accepted, [...consumer.arrived.values()]);
  requireOrder(load.accepted, byBody);
  await requireReceipts(node, load.accepted);
}

/** Every accepted body is the payload of exactly one message. Returns the messages by body. */
function requireArrivals(
  accepted: readonly AcceptedRecord[],
  arrivals: readonly Arrival[],
): ReadonlyMap<string, Arrival> {
  const byBody = new Map<string, Arrival>();
  for (const arrival of arrivals) {
    const twin = byBody.get(arrival.b3);
    assert.equal(twin, undefined, `the messages ${twin?.id} and ${arrival.id} have the same body`);
    byBody.set(arrival.b3, arrival);
  }
  const lost = accepted.filter(({ b3 }) => !byBody.has(b3));
  assert.deepEqual(lost.slice(0, 3), [], `${lost.length} of ${accepted.length} accepted deliveries did not arrive`);
  for (const { place, receipt, topic, b3 } of accepted) {
    const arrival = byBody.get(b3)!;
    assert.equal(arrival.topic, topic);
    // A spooled retry of a delivery that mailbox had before keeps a receipt of its own.
    if (place === 'mailbox') assert.equal(arrival.id, receipt, 'the message has the id of the receipt');
  }
  return byBody;
}

/** The messages of a stream have sequence numbers in the order of its deliveries. */
function requireOrder(accepted: readonly AcceptedRecord[], byBody: ReadonlyMap<string, Arrival>): void {
  const last = new Map<string, { at: number; seq: number }>();
  for (const { stream, at, b3 } of accepted) {
    const { seq } = byBody.get(b3)!;
    const before = last.get(stream);
    assert.ok(
      before === undefined || (before.at < at && before.seq < seq),
      `delivery ${at} of ${stream} arrived before delivery ${before?.at}`,
    );
    last.set(stream, { at, seq });
  }
}

/** Every accepted delivery has its receipt, signed with the key of the node. */
export async function requireReceipts(
  node: TestNode,
  accepted: readonly Pick<AcceptedRecord, 'receipt' | 'b3'>[],
): Promise<void> {
  const admin = await node.admin();
  const ids = new Set(accepted.map(({ receipt }) => receipt));
  assert.equal(ids.size, accepted.length, 'two deliveries have the same receipt');
  const kms = await node.kms();
  let keys: readonly ReceiptKey[] = [];
  if (accepted.length > 0)
    await eventually('kms has the key of receipts', async () => (keys = await receiptKeys(kms)).length > 0);
  const waiting = [...accepted];
  const read = async (): Promise<void> => {
    for (let one = waiting.pop(); one !== undefined; one = waiting.pop()) {
      const { receipt: id, b3 } = one;
      let signed: SignedReceipt | undefined;
      await eventually(`the receipt ${id} is signed`, async () => {
        signed = await admin.receipt(id, { wait: true });
        return signed !== undefined;
      });
      const check = await checkReceipt(signed, { keys });
      assert.ok(check.ok, `the receipt ${id} holds: ${check.ok ? '' : check.detail}`);
      assert.deepEqual([check.facts.receipt.id, check.facts.receipt.b3], [id, b3]);
    }
  };
  await Promise.all(Array.from({ length: READERS }, read));
}

/** The public keys of receipts, from kms. */
async function receiptKeys(kms: KmsClient): Promise<readonly ReceiptKey[]> {
  for await (const { kid } of kms.keys({ tenant: 'interop', prefix: 'interop/receipts/' })) {
    const { public: its } = await kms.key(kid);
    return its.parts!.map(({ alg, pubkey_b64 }) => ({ alg, spki: Uint8Array.fromBase64(pubkey_b64) }));
  }
  return [];
}
