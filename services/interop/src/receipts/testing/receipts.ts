/** Receipts, and a kms that can be away, for tests. */
import assert from 'node:assert/strict';
import { generateKeyPairSync, sign, type KeyObject } from 'node:crypto';
import { NEVER, RonError, sched } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import { formatUlid, signedText, type AuditProof, type WebhookReceipt } from '@ron/proto';
import type { ReceiptKey } from '@ron/client/webhook-receipt';
import type { RootSignature } from '../receipt-records.ts';
import { Receipts, type ReceiptEvent, type ReceiptKms, type ReceiptsInit } from '../receipts.ts';

export const KID = 'interop/receipts/hybrid/0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10#v1';
export const MIB = 1024 * 1024;
const DAY_MS = 24 * 3600 * 1000;

export function receiptOf(number: number, some: Partial<WebhookReceipt> = {}): WebhookReceipt {
  const id = Buffer.alloc(16);
  id.writeUIntBE(1_800_000_000_000, 0, 6);
  id.writeUInt32BE(number, 6);
  id.writeUInt32BE(Math.imul(number, 0x9e3779b1) >>> 0, 12);
  return {
    id: formatUlid(id),
    provider: 'github',
    scheme: 'github',
    secret_version: 1,
    delivery_id: `unsigned-72d3162e-cc78-11e3-81ab-4c9367dc0${number}`,
    received_ms: 1_800_000_000_000 + number,
    b3: `b3:${Buffer.alloc(32, number % 251).toString('hex')}`,
    bytes: number % 1024,
    topic: 'hooks.github',
    ...some,
  };
}

/** A receipt whose id has this time. */
export function receiptAt(time_ms: number): WebhookReceipt {
  const id = Buffer.alloc(16);
  id.writeUIntBE(time_ms, 0, 6);
  return receiptOf(1, { id: formatUlid(id) });
}

/** An id of this moment. */
export const idNow = (): string => receiptAt(sched.wall_ms()).id;

export const receiptsOf = (first: number, count: number): WebhookReceipt[] =>
  Array.from({ length: count }, (_, at) => receiptOf(first + at));

/** Signs as kms does, with a key of its own. */
export class FakeKms implements ReceiptKms {
  readonly keys: readonly (ReceiptKey & { readonly privateKey: KeyObject })[];
  readonly roots: string[] = [];
  isAway = false;
  covered = 0;

  constructor() {
    this.keys = ['ed25519', 'ml-dsa-65'].map((alg) => {
      // The overloads do not know all algorithms together.
      const { publicKey, privateKey } = generateKeyPairSync(alg as 'ed25519');
      return { alg, privateKey, spki: Uint8Array.from(publicKey.export({ type: 'spki', format: 'der' })) };
    });
  }

  async sign(root: string): Promise<RootSignature> {
    if (this.isAway) throw new RonError('unreachable', 'kms is away');
    this.roots.push(root);
    const message = Buffer.from(signedText(KID, root));
    const sigs = this.keys.map(({ alg, privateKey }) => ({
      kid: KID,
      alg,
      signature_b64: sign(null, message, privateKey).toString('base64'),
    }));
    return { kid: KID, sigs, log_index: this.roots.length - 1 };
  }

  async proof(log_index: number): Promise<AuditProof | undefined> {
    if (this.isAway) throw new RonError('unreachable', 'kms is away');
    if (log_index >= this.covered) return undefined;
    return { log_index, tree_size: this.covered, leaf_hash_b64: '', path_b64: [], entry_b64: '', checkpoint: '' };
  }
}

export interface OpenTest {
  readonly events: ReceiptEvent[];
  readonly receipts: Receipts;
}

export async function openTest(fs: FileSystem, some: Partial<ReceiptsInit> = {}): Promise<OpenTest> {
  const events: ReceiptEvent[] = [];
  const receipts = await Receipts.open({
    dir: '/receipts',
    fs,
    bytes_max: 8 * MIB,
    max_age_ms: 90 * DAY_MS,
    kms: undefined,
    onEvent: (event) => events.push(event),
    signal: NEVER,
    ...some,
  });
  return { events, receipts };
}

/** Runs the task `receipt_signer` until the end of the test. */
export function running(receipts: Receipts): AsyncDisposable {
  const [stopping, signal] = [new AbortController(), new AbortController()];
  const done = receipts.run({ stopping: stopping.signal, signal: signal.signal });
  return {
    async [Symbol.asyncDispose]() {
      stopping.abort();
      await done;
    },
  };
}

export async function appendAll(receipts: Receipts, all: readonly WebhookReceipt[]): Promise<void> {
  for (let at = 0; at < all.length; at += 128) await receipts.append(all.slice(at, at + 128), NEVER);
}

export async function signedOf(receipts: Receipts, id: string) {
  const state = await receipts.get(id, NEVER);
  assert.ok(state?.signed, 'the receipt is signed');
  return state.signed;
}
