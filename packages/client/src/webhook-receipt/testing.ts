/** Signed receipts for tests. */
import { generateKeyPairSync, sign, type KeyObject } from 'node:crypto';
import { signedText, type SignedReceipt, type WebhookReceipt } from '@ron/proto';
import { addressOf } from '../object-hasher.ts';
import type { ReceiptKey } from './check-receipt.ts';
import { receiptLeaf, treePath, treeRoot, treeSize } from './receipt-tree.ts';

export const KID = 'interop/receipts/hybrid/0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10#v1';
export const ALGS = ['ed25519', 'ml-dsa-65'] as const;

export interface SigningKey extends ReceiptKey {
  readonly privateKey: KeyObject;
}

export function newKeys(): SigningKey[] {
  return ALGS.map((alg) => {
    // The overloads do not know all algorithms together.
    const { publicKey, privateKey } = generateKeyPairSync(alg as 'ed25519');
    return { alg, privateKey, spki: Uint8Array.from(publicKey.export({ type: 'spki', format: 'der' })) };
  });
}

const ULID_TAIL = '00000000000000000000000';

export function receiptOf(number: number, body: Uint8Array = Uint8Array.of(number)): WebhookReceipt {
  return {
    id: `01J${ULID_TAIL.slice(0, -4)}${String(number).padStart(4, '0')}`,
    provider: 'github',
    scheme: 'github',
    secret_version: 1,
    ...(number % 2 === 0 && { delivery_id: `unsigned-"${number}"\u20ac` }),
    received_ms: 1_800_000_000_000 + number,
    b3: addressOf(body),
    bytes: body.length,
    topic: 'hooks.github',
  };
}

export function signedReceipt(
  receipts: readonly WebhookReceipt[],
  index: number,
  keys: readonly SigningKey[],
  kid: string = KID,
): SignedReceipt {
  const leaves = receipts.map(receiptLeaf);
  const root = treeRoot(leaves).toHex();
  const message = Buffer.from(signedText(kid, root));
  return {
    receipt: receipts[index]!,
    tree: {
      size: treeSize(leaves.length),
      index,
      leaf: leaves[index]!.toHex(),
      path: treePath(leaves, index).map((hash) => hash.toHex()),
      root,
    },
    kid,
    sigs: keys.map(({ alg, privateKey }) => ({
      kid,
      alg,
      signature_b64: sign(null, message, privateKey).toString('base64'),
    })),
    log_index: 7,
  };
}
