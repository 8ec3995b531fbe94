/**
 * The key of receipts in kms: tenant `interop`, purpose `receipts`, `hybrid` (Ed25519 and ML-DSA-65).
 *
 * Contract: the key is found in kms, or created at the first use. Both signatures of a root are verified before they are stored,
 * so a kms that lost the key cannot fill the log with invalid ones; a signature by another key than the requested one is
 * refused. A rotation is followed: each answer names its version. A repeated request has the same `op_id`, which names root and
 * key, so kms answers the same.
 * Bound: the deadline `kms` for each call; one name and one public key are remembered. Cancellation: by the signal of each call.
 */
import { createPublicKey, verify } from 'node:crypto';
import { isRonError, RonError } from '@ron/kernel';
import { signedText, splitKid, type AuditProof, type PublicPart, type SignedPayload } from '@ron/proto';
import type { KmsAccess } from '../upstreams/kms-access.ts';
import type { RootSignature } from './receipt-records.ts';
import type { ReceiptKms } from './receipts.ts';

const KEY = { purpose: 'receipts', alg: 'hybrid' } as const;
const PARTS: readonly string[] = ['ed25519', 'ml-dsa-65'];

interface KnownVersion {
  readonly kid: string;
  readonly parts: readonly PublicPart[];
}

export class KmsReceiptKey implements ReceiptKms {
  readonly #kms: KmsAccess;
  /** Without a version: the current one signs. */
  #name: string | undefined;
  #known: KnownVersion | undefined;

  constructor(kms: KmsAccess) {
    this.#kms = kms;
  }

  async sign(root: string, signal: AbortSignal): Promise<RootSignature> {
    try {
      const kid = (this.#name ??= splitKid(await this.#kms.findKey(KEY, signal))!.name);
      // The same root may have been signed by a key that was disabled since: that is another operation.
      const request = { kid, payload_b3: root, op_id: `receipts-${root}-${uuidOf(kid)}` };
      const signed = await this.#kms.run('sign', signal, (kms, within) => kms.sign(request, { signal: within }));
      if (splitKid(signed.kid)?.name !== kid)
        throw new RonError('integrity', `kms signed with another key than ${kid}`);
      await this.#requireValid(signed, root, signal);
      const { kid: version, sigs, log_index } = signed;
      return { kid: version, sigs, ...(log_index !== undefined && { log_index }) };
    } catch (error) {
      // The key may have been disabled or deleted: the next try finds or creates another.
      this.#name = undefined;
      throw error;
    }
  }

  async proof(log_index: number, signal: AbortSignal): Promise<AuditProof | undefined> {
    try {
      return await this.#kms.run('proof', signal, (kms, within) => kms.proof(log_index, { signal: within }));
    } catch (error) {
      if (isRonError(error, 'not_found')) return undefined;
      throw error;
    }
  }

  async #requireValid({ kid, sigs }: SignedPayload, root: string, signal: AbortSignal): Promise<void> {
    if (this.#known?.kid !== kid) {
      const { public: its } = await this.#kms.run('find_key', signal, (kms, within) =>
        kms.key(kid, { signal: within }),
      );
      this.#known = { kid, parts: its.parts ?? [] };
    }
    const message = Buffer.from(signedText(kid, root));
    const { parts } = this.#known;
    const isValid = (alg: string): boolean => {
      const [part, sig] = [parts.find((each) => each.alg === alg), sigs.find((each) => each.alg === alg)];
      return part !== undefined && sig?.kid === kid && isSignedBy(part, message, sig.signature_b64);
    };
    if (sigs.length === PARTS.length && PARTS.every(isValid)) return;
    this.#known = undefined;
    throw new RonError('integrity', `kms did not sign with ${kid}: restore its data`);
  }
}

const uuidOf = (kid: string): string => kid.slice(kid.lastIndexOf('/') + 1);

function isSignedBy({ pubkey_b64 }: PublicPart, message: Uint8Array, signature_b64: string): boolean {
  try {
    const key = createPublicKey({ key: Buffer.from(pubkey_b64, 'base64'), format: 'der', type: 'spki' });
    return verify(null, message, key, Buffer.from(signature_b64, 'base64'));
  } catch {
    return false;
  }
}
