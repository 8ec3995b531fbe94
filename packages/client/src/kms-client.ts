/**
 * A client of the key service: keys, signatures, wrapped keys and derived secrets.
 *
 * Contract: retries are idempotent. Keys are created and rotated under an idempotency key; every other call changes nothing
 * or may safely happen twice. Secrets exist only in the values that methods return.
 * Bound: batches of `SIGN_ITEMS_MAX`; responses as in JsonCalls. Cancellation: by the signal of each call and of the client.
 */
import { RonError, sched } from '@ron/kernel/core';
import type {
  AcceptedAudit,
  AudienceRootState,
  AuditKeys,
  AuditStatus,
  CreatedKey,
  CreateKeyInit,
  DataKey,
  AuditProof,
  KeyDeletion,
  AuditPruned,
  KeyInfo,
  KeyPage,
  RotatedKey,
  SignedPayload,
  SignInit,
  Verification,
  VerifyInit,
  WrappedKey,
} from '@ron/proto';
import { JsonCalls } from './json-calls.ts';
import type { TransportInit } from './transport.ts';

export const SIGN_ITEMS_MAX = 128;
const ID_BYTES = 16;

export interface KmsCallOptions {
  signal?: AbortSignal | undefined;
}

export class KmsClient {
  readonly #calls: JsonCalls;

  constructor(init: TransportInit) {
    this.#calls = new JsonCalls('v1/kms/', init);
  }

  get url(): string {
    return this.#calls.url;
  }

  /** Creates a key; its private part never leaves the service. */
  async createKey(init: CreateKeyInit, call: KmsCallOptions = {}): Promise<CreatedKey> {
    const { tenant, purpose, alg, policy, op_id = newId() } = init;
    return await this.#post('keys.create', 'keys', { tenant, purpose, alg, policy, op_id }, call);
  }

  /** Imports a foreign public key for verification. */
  async importKey(
    init: { readonly tenant: string; readonly alg: string; readonly pubkey_b64: string },
    call: KmsCallOptions = {},
  ): Promise<CreatedKey> {
    return await this.#post('keys.import', 'keys/import', { ...init, purpose: 'raw' }, call);
  }

  /** A `kid` with a version is rotated only if that version is current; without one, the current version is rotated. */
  async rotateKey(kid: string, call: KmsCallOptions & { readonly op_id?: string } = {}): Promise<RotatedKey> {
    const { op_id = newId() } = call;
    return await this.#post('keys.rotate', `keys/${encodeURIComponent(kid)}/rotate`, { op_id }, call);
  }

  /**
   * Older versions no longer verify; after the waiting period they no longer unwrap and derive. Until then it can be
   * lowered again.
   */
  async setMinVersion(kid: string, min_version: number, call: KmsCallOptions = {}): Promise<KeyInfo> {
    return await this.#post('keys.policy', `keys/${encodeURIComponent(kid)}/policy`, { min_version }, call);
  }

  /** The key no longer signs, wraps, unwraps and derives; it still verifies. `kid` names no version. */
  async disableKey(kid: string, call: KmsCallOptions = {}): Promise<KeyInfo> {
    return await this.#post('keys.disable', `keys/${encodeURIComponent(kid)}/disable`, undefined, call);
  }

  async enableKey(kid: string, call: KmsCallOptions = {}): Promise<KeyInfo> {
    return await this.#post('keys.enable', `keys/${encodeURIComponent(kid)}/enable`, undefined, call);
  }

  /**
   * Deletes the version that `kid` names, or with `whole` the key, which `kid` names without a version. The first call
   * starts the waiting period; a second call after it destroys the key material.
   */
  async deleteKey(kid: string, call: KmsCallOptions & { readonly whole?: boolean } = {}): Promise<KeyDeletion> {
    return await this.#post('keys.delete', `keys/${encodeURIComponent(kid)}/delete`, { whole: call.whole }, call);
  }

  /** Cancels a deletion during its waiting period. */
  async restoreKey(kid: string, call: KmsCallOptions = {}): Promise<KeyDeletion> {
    return await this.#post('keys.restore', `keys/${encodeURIComponent(kid)}/restore`, undefined, call);
  }

  async key(kid: string, call: KmsCallOptions = {}): Promise<KeyInfo> {
    return await this.#get('keys.get', `keys/${encodeURIComponent(kid)}`, call);
  }

  /** The versions of the root of the capability keys. */
  async audienceRoot(call: KmsCallOptions = {}): Promise<AudienceRootState> {
    return await this.#get('audience', 'audience', call);
  }

  /** Creates the version after `version`, which must be current. */
  async rotateAudienceRoot(version: number, call: KmsCallOptions = {}): Promise<AudienceRootState> {
    return await this.#post('audience.rotate', 'audience/rotate', { version }, call);
  }

  /** Makes capabilities under older versions invalid, permanently. */
  async retireAudienceRoot(min_version: number, call: KmsCallOptions = {}): Promise<AudienceRootState> {
    return await this.#post('audience.retire', 'audience/retire', { min_version }, call);
  }

  /** All keys, or those of one tenant, or those whose name begins with `prefix`, in the order of their names. */
  async *keys(
    init: { readonly tenant?: string | undefined; readonly prefix?: string | undefined } & KmsCallOptions = {},
  ): AsyncGenerator<KeyInfo, void, void> {
    const { tenant, prefix } = init;
    for (let after: string | undefined; ;) {
      const query = new URLSearchParams({
        limit: '1000',
        ...(tenant !== undefined && { tenant }),
        ...(prefix !== undefined && { prefix }),
        ...(after !== undefined && { after }),
      });
      const page: KeyPage = await this.#get('keys.list', `keys?${query.toString()}`, init);
      yield* page.keys;
      if (page.next === undefined) return;
      after = page.next;
    }
  }

  /** Signs one payload. With `wait: 'checkpoint'` the result has a proof of its inclusion in the audit log. */
  async sign(init: SignInit, call: KmsCallOptions & { readonly wait?: 'checkpoint' } = {}): Promise<SignedPayload> {
    return await this.#post('sign', 'sign', { ...init, wait: call.wait }, call);
  }

  /** Signs up to `SIGN_ITEMS_MAX` payloads, in order; all or none. */
  async signMany(items: readonly SignInit[], call: KmsCallOptions = {}): Promise<readonly SignedPayload[]> {
    if (items.length > SIGN_ITEMS_MAX) {
      throw new RonError('payload_too_large', `a batch has at most ${SIGN_ITEMS_MAX} items, not ${items.length}`);
    }
    const answer = await this.#post<{ items: readonly SignedPayload[] }>('sign', 'sign', { items }, call);
    return answer.items;
  }

  async verify(init: VerifyInit, call: KmsCallOptions = {}): Promise<Verification> {
    const { kid, payload_b3, message_b64, sigs, mode } = init;
    const policy = mode === undefined ? undefined : { mode };
    return await this.#post('verify', 'verify', { kid, payload_b3, message_b64, sigs, policy }, call);
  }

  async wrap(kid: string, plaintext: Uint8Array, aad?: Uint8Array, call: KmsCallOptions = {}): Promise<WrappedKey> {
    return await this.#post(
      'wrap',
      'wrap',
      { kid, plaintext_key_b64: base64(plaintext), aad_b64: optional(aad) },
      call,
    );
  }

  async unwrap(kid: string, wrapped_b64: string, aad?: Uint8Array, call: KmsCallOptions = {}): Promise<Uint8Array> {
    type Answer = { readonly plaintext_key_b64: string };
    const answer = await this.#post<Answer>('unwrap', 'unwrap', { kid, wrapped_b64, aad_b64: optional(aad) }, call);
    return fromBase64(answer.plaintext_key_b64);
  }

  /** A new data key, plain and wrapped. */
  async dataKey(kid: string, aad?: Uint8Array, call: KmsCallOptions = {}): Promise<DataKey> {
    type Answer = WrappedKey & { readonly plaintext_key_b64: string };
    const { plaintext_key_b64, ...wrapped } = await this.#post<Answer>(
      'datakey',
      'datakey',
      { kid, aad_b64: optional(aad) },
      call,
    );
    return { ...wrapped, plaintext: fromBase64(plaintext_key_b64) };
  }

  /** 32 bytes that are derived from the key version and the label. */
  async derive(kid: string, label: string, call: KmsCallOptions = {}): Promise<Uint8Array> {
    return fromBase64((await this.#post<{ secret_b64: string }>('derive', 'derive', { kid, label }, call)).secret_b64);
  }

  /** The name of the audit log and the keys that sign it. Keep a copy if you do not trust the service. */
  async auditKeys(call: KmsCallOptions = {}): Promise<AuditKeys> {
    return await this.#get('audit.keys', 'audit/keys', call);
  }

  /** Whether the log is sound. */
  async auditStatus(call: KmsCallOptions = {}): Promise<AuditStatus> {
    return await this.#get('audit.status', 'audit/status', call);
  }

  /** Accepts the damage of the log: the next start of kms begins a new one. */
  async acceptAudit(problem_sha256: string, reason: string, call: KmsCallOptions = {}): Promise<AcceptedAudit> {
    return await this.#post('audit.accept', 'audit/accept', { problem_sha256, reason }, call);
  }

  async proof(log_index: number, call: KmsCallOptions = {}): Promise<AuditProof> {
    return await this.#get('audit.proof', `audit/proof/${log_index}`, call);
  }

  /** Removes the entries of the audit log before an index permanently. */
  async pruneAudit(before: number, call: KmsCallOptions = {}): Promise<AuditPruned> {
    return await this.#post('audit.prune', 'audit/prune', { before }, call);
  }

  async #get<T>(op: string, path: string, call: KmsCallOptions): Promise<T> {
    const answer = await this.#calls.get<T>(op, path, call.signal);
    if (answer === undefined) throw new RonError('integrity', 'the server sent an empty response', { op });
    return answer;
  }

  async #post<T>(op: string, path: string, body: unknown, call: KmsCallOptions): Promise<T> {
    return await this.#calls.post(op, path, body, call.signal);
  }
}

/** An idempotency key. */
function newId(): string {
  return [...sched.randomBytes(ID_BYTES)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

const optional = (bytes: Uint8Array | undefined): string | undefined =>
  bytes === undefined ? undefined : base64(bytes);

function base64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}

function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}
