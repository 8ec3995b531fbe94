/**
 * The key service as a caller sees it: keys by name, signatures that anybody can check, secrets of one's own.
 *
 * Promise: what is repeated has the same effect as done once: keys are made and rotated under an id that the service
 * remembers, everything else changes nothing or may happen twice. Secrets are in what a method returns and nowhere else.
 * Bound: batches of `SIGN_ITEMS_MAX`; answers as `JsonCalls` says. Cancellation: every method takes a signal besides
 * the client's own.
 */
import { RonError, sched } from '@ron/kernel/core';
import type {
  AuditKeys,
  CreatedKey,
  CreateKeyInit,
  DataKey,
  AuditProof,
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

  /** Makes a key; its private part never leaves the service. */
  async createKey(init: CreateKeyInit, call: KmsCallOptions = {}): Promise<CreatedKey> {
    const { tenant, purpose, alg, policy, op_id = newId() } = init;
    return await this.#post('keys.create', 'keys', { tenant, purpose, alg, policy, op_id }, call);
  }

  /** Keeps a public key of somebody else, to verify with. */
  async importKey(
    init: { readonly tenant: string; readonly alg: string; readonly pubkey_b64: string },
    call: KmsCallOptions = {},
  ): Promise<CreatedKey> {
    return await this.#post('keys.import', 'keys/import', { ...init, purpose: 'raw' }, call);
  }

  /** `kid` with a version rotates only if that is current; without one whatever is. */
  async rotateKey(kid: string, call: KmsCallOptions & { readonly op_id?: string } = {}): Promise<RotatedKey> {
    const { op_id = newId() } = call;
    return await this.#post('keys.rotate', `keys/${encodeURIComponent(kid)}/rotate`, { op_id }, call);
  }

  async key(kid: string, call: KmsCallOptions = {}): Promise<KeyInfo> {
    return await this.#get('keys.get', `keys/${encodeURIComponent(kid)}`, call);
  }

  /** All keys, or those of one tenant, in the order of their names. */
  async *keys(
    init: { readonly tenant?: string | undefined } & KmsCallOptions = {},
  ): AsyncGenerator<KeyInfo, void, void> {
    const { tenant } = init;
    for (let after: string | undefined; ;) {
      const query = new URLSearchParams({
        limit: '1000',
        ...(tenant !== undefined && { tenant }),
        ...(after !== undefined && { after }),
      });
      const page: KeyPage = await this.#get('keys.list', `keys?${query.toString()}`, init);
      yield* page.keys;
      if (page.next === undefined) return;
      after = page.next;
    }
  }

  /** Signs one payload. With `wait: 'checkpoint'` the answer proves that it is in the audit log. */
  async sign(init: SignInit, call: KmsCallOptions & { readonly wait?: 'checkpoint' } = {}): Promise<SignedPayload> {
    return await this.#post('sign', 'sign', { ...init, wait: call.wait }, call);
  }

  /** Signs up to `SIGN_ITEMS_MAX` payloads, in their order; all or none. */
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

  /** A fresh key, plain and wrapped. */
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

  /** 32 bytes that follow from the key version and the label. */
  async derive(kid: string, label: string, call: KmsCallOptions = {}): Promise<Uint8Array> {
    return fromBase64((await this.#post<{ secret_b64: string }>('derive', 'derive', { kid, label }, call)).secret_b64);
  }

  /** The name of the audit log and the keys that sign it. Whoever does not trust the service keeps a copy. */
  async auditKeys(call: KmsCallOptions = {}): Promise<AuditKeys> {
    return await this.#get('audit.keys', 'audit/keys', call);
  }

  async proof(log_index: number, call: KmsCallOptions = {}): Promise<AuditProof> {
    return await this.#get('audit.proof', `audit/proof/${log_index}`, call);
  }

  async #get<T>(op: string, path: string, call: KmsCallOptions): Promise<T> {
    const answer = await this.#calls.get<T>(op, path, call.signal);
    if (answer === undefined) throw new RonError('integrity', 'the server answers with nothing', { op });
    return answer;
  }

  async #post<T>(op: string, path: string, body: unknown, call: KmsCallOptions): Promise<T> {
    return await this.#calls.post(op, path, body, call.signal);
  }
}

/** Under which an operation happens once, however often it is sent. */
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
