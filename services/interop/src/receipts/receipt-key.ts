/**
 * The key of receipts in kms: tenant `interop`, purpose `receipts`, `hybrid` (Ed25519 and ML-DSA-65).
 *
 * Contract: the key is found in kms, or created at the first use. Both signatures of a root are verified before they are stored,
 * so a kms that lost the key cannot fill the log with invalid ones. A rotation is followed: each answer names its version. A
 * repeated request has the same `op_id`, so kms answers the same. The capability is read before each call, because it is renewed
 * in its file, and it is narrowed to the call; only a private connection receives it.
 * Bound: the deadline of `call` for each call; one name and one public key are remembered. Cancellation: by the signal of each call.
 */
import { createPublicKey, verify } from 'node:crypto';
import { narrowed } from '@ron/auth/narrowed';
import { KmsClient, type AuthorizedRequest } from '@ron/client';
import { reachPrivately } from '@ron/client/node';
import { isRonError, RonError } from '@ron/kernel';
import { readSecretFile } from '@ron/log';
import { signedText, splitKid, type AuditProof, type PublicPart, type SignedPayload } from '@ron/proto';
import type { KmsCall } from '../providers/kms-secrets.ts';
import type { RootSignature } from './receipt-records.ts';
import type { ReceiptKms } from './receipts.ts';

const TENANT = 'interop';
const PURPOSE = 'receipts';
const ALG = 'hybrid';
/** Two starts at a time must not create two keys. */
const OP_ID = 'interop-receipts';
const PARTS: readonly string[] = ['ed25519', 'ml-dsa-65'];
/** `call` limits and repeats. */
const ONCE = { tries_max: 1, backoff_ms: () => 0 } as const;

export interface ReceiptKeyInit {
  /** `unix:PATH`, or `https://` with a pin. */
  readonly url: string;
  readonly pin: string | undefined;
  readonly capability_file: string;
  /** For a new connection. */
  readonly connect_ms: number;
  readonly call: KmsCall;
}

interface KnownVersion {
  readonly kid: string;
  readonly parts: readonly PublicPart[];
}

export class ReceiptKey implements ReceiptKms {
  readonly #init: ReceiptKeyInit;
  readonly #reach: ReturnType<typeof reachPrivately>;
  /** Without a version: the current one signs. */
  #name: string | undefined;
  #known: KnownVersion | undefined;

  constructor(init: ReceiptKeyInit) {
    this.#init = init;
    this.#reach = reachPrivately(init.url, init.pin);
  }

  async sign(root: string, signal: AbortSignal): Promise<RootSignature> {
    try {
      const kid = (this.#name ??= await this.#call('find_key', signal, findKey));
      const request = { kid, payload_b3: root, op_id: `receipts-${root}` };
      const signed = await this.#call('sign', signal, (kms, within) => kms.sign(request, { signal: within }));
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
      return await this.#call('proof', signal, (kms, within) => kms.proof(log_index, { signal: within }));
    } catch (error) {
      if (isRonError(error, 'not_found')) return undefined;
      throw error;
    }
  }

  async #requireValid({ kid, sigs }: SignedPayload, root: string, signal: AbortSignal): Promise<void> {
    if (this.#known?.kid !== kid) {
      const { public: its } = await this.#call('find_key', signal, (kms, within) => kms.key(kid, { signal: within }));
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

  #call<T>(op: string, signal: AbortSignal, work: (kms: KmsClient, signal: AbortSignal) => Promise<T>): Promise<T> {
    const { call, capability_file, connect_ms } = this.#init;
    return call(op, signal, async (within) => {
      const token = await readSecretFile(capability_file);
      const authorize = ({ body }: AuthorizedRequest): string => narrowed(token, { audience: 'kms', body });
      return await work(new KmsClient({ ...this.#reach, authorize, connect_ms, policy: ONCE }), within);
    });
  }
}

async function findKey(kms: KmsClient, signal: AbortSignal): Promise<string> {
  const prefix = `${TENANT}/${PURPOSE}/${ALG}/`;
  for await (const { kid, state } of kms.keys({ tenant: TENANT, prefix, signal })) {
    if (state === 'enabled') return splitKid(kid)!.name;
  }
  const made = await kms.createKey({ tenant: TENANT, purpose: PURPOSE, alg: ALG, op_id: OP_ID }, { signal });
  return splitKid(made.kid)!.name;
}

function isSignedBy({ pubkey_b64 }: PublicPart, message: Uint8Array, signature_b64: string): boolean {
  try {
    const key = createPublicKey({ key: Buffer.from(pubkey_b64, 'base64'), format: 'der', type: 'spki' });
    return verify(null, message, key, Buffer.from(signature_b64, 'base64'));
  } catch {
    return false;
  }
}
