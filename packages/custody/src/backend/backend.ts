/**
 * What a place that holds keys can do. Every backend keeps these promises; `contract.ts` in the tests holds them to it.
 *
 * Promise: a private key never leaves: no method returns one and no error, log or metric holds a byte of one. A handle
 * is good until its key is destroyed, over restarts too where the backend lasts. A call that resolves has taken effect
 * for good; one that rejects with `not_ready` may be tried again.
 * Bound: the limits below, checked by every backend; `keys_max` keys. Overflow: `payload_too_large`, `storage_full`.
 * Cancellation: every call takes a signal and rejects with its reason; work in native code that it cannot stop ends by
 * itself and is thrown away.
 *
 * | error | when |
 * | --- | --- |
 * | `not_found` | no such key, or it is of another algorithm |
 * | `validation` | the algorithm cannot do this, or what is to be unwrapped was not wrapped by this key with this `aad` |
 * | `payload_too_large` | above a limit below |
 * | `rotate_needed` | the key was used as often as is safe |
 * | `not_ready` | the backend is away; a later call may work |
 */
import { RonError } from '@ron/kernel';
import { ALGORITHMS, isAlg, type Alg, type SigningAlg, type Use } from '../algorithms/algorithms.ts';

export const MESSAGE_BYTES_MAX = 64 * 1024;
export const WRAP_BYTES_MAX = 64 * 1024;
export const AAD_BYTES_MAX = 64 * 1024;
export const LABEL_CHARS_MAX = 256;
export const DERIVED_BYTES_MAX = 1024;
/** Messages of one `signMany`. */
export const BATCH_MAX = 128;
export const KEY_CHARS_MAX = 128;
/** Keys that one backend holds unless told otherwise. */
export const KEYS_MAX = 65_536;

/** A public key that others can use: DER SubjectPublicKeyInfo in base64. */
export interface PublicPart {
  readonly alg: Alg;
  readonly pubkey_b64: string;
}

export interface KeyHandle {
  /** Names the key in its backend. No secret; at most `KEY_CHARS_MAX` characters of `[A-Za-z0-9._:-]`. */
  readonly key: string;
  readonly alg: Alg;
  /** One for each signature of the algorithm, in its order; empty for symmetric keys. */
  readonly public: readonly PublicPart[];
}

export interface Signature {
  readonly alg: SigningAlg;
  readonly signature: Uint8Array;
}

export interface BackendState {
  readonly ok: boolean;
  /** Why not, for an operator; empty when it is. */
  readonly reason: string;
}

/** What a backend can say about itself to somebody who does not trust this process. Public. */
export interface Attestation {
  readonly attestation_class: string;
  /** JSON of what the backend reports: whose device, which model, how keys are kept. */
  readonly evidence: Readonly<Record<string, string | number | boolean>>;
  readonly issued_ms: number;
}

export interface Backend extends AsyncDisposable {
  readonly name: 'memory' | 'file' | 'pkcs11' | 'tpm' | 'cloud';
  /** How keys are kept, for those who read a key list: `software:memory`, `token:<model>`, ... */
  readonly attestation_class: string;
  /** What `create` accepts. */
  readonly algs: ReadonlySet<Alg>;
  /** Whether it can work now. Cheap. */
  state(): BackendState;
  /** Makes a key. `label` is for people who look into the backend; it need not be unique. */
  create(alg: Alg, label: string, signal: AbortSignal): Promise<KeyHandle>;
  /** The handle of a key that exists. */
  open(key: string, alg: Alg, signal: AbortSignal): Promise<KeyHandle>;
  /** Ends a key for good. Destroying one that is gone is no error, so that it can be repeated. */
  destroy(key: string, signal: AbortSignal): Promise<void>;
  /** One signature for each part of the algorithm, over exactly these bytes. */
  sign(key: string, message: Uint8Array, signal: AbortSignal): Promise<Signature[]>;
  /** As `sign` for up to `BATCH_MAX` messages; all or none. */
  signMany(key: string, messages: readonly Uint8Array[], signal: AbortSignal): Promise<Signature[][]>;
  wrap(key: string, plaintext: Uint8Array, aad: Uint8Array, signal: AbortSignal): Promise<Uint8Array>;
  unwrap(key: string, wrapped: Uint8Array, aad: Uint8Array, signal: AbortSignal): Promise<Uint8Array>;
  /** The same key and label always give the same bytes; other labels give independent ones. */
  derive(key: string, label: string, bytes: number, signal: AbortSignal): Promise<Uint8Array>;
  attest?(signal: AbortSignal): Promise<Attestation>;
  /** Probes sessions and connections and reopens dead ones. The service calls it periodically, with backoff. */
  probe?(signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

const KEY_PATTERN = /^[A-Za-z0-9._:-]+$/;

/** Whether it could name a key; untrusted text goes no further otherwise. */
export function isKeyName(key: string): boolean {
  return key.length <= KEY_CHARS_MAX && KEY_PATTERN.test(key);
}

/**
 * The algorithm of a key whose backend keeps only names: `<alg>.<id>`, for two secrets of a token look alike. Throws
 * `not_found` when it is no such name.
 */
export function algOfName(key: string): Alg {
  const alg = isKeyName(key) ? key.slice(0, Math.max(0, key.indexOf('.'))) : '';
  if (!isAlg(alg)) throw noSuchKey();
  return alg;
}

export function noSuchKey(): RonError {
  return new RonError('not_found', 'the backend has no such key');
}

export function cannotUnwrap(): RonError {
  return new RonError('validation', 'this was not wrapped by this key with this additional data');
}

export function awayError(what: string, cause?: unknown): RonError {
  return new RonError('not_ready', what, { retry_after_ms: 1000, ...(cause === undefined ? {} : { cause }) });
}

/** Refuses a key whose algorithm is for something else. */
export function requireUse(alg: Alg, use: Use): void {
  if (ALGORITHMS[alg].use !== use) throw new RonError('validation', `a key of ${alg} does not ${use}`);
}

export function requireAlg(algs: ReadonlySet<Alg>, alg: Alg, name: string): void {
  if (!algs.has(alg)) throw new RonError('validation', `the backend ${name} has no ${alg}`);
}

function requireBytes(what: string, bytes: number, bytes_max: number): void {
  if (bytes > bytes_max) {
    throw new RonError('payload_too_large', `${what} has ${bytes} bytes, the limit is ${bytes_max}`);
  }
}

export const requireMessage = (message: Uint8Array): void =>
  requireBytes('the message', message.length, MESSAGE_BYTES_MAX);

export function requireBatch(messages: readonly Uint8Array[]): void {
  if (messages.length > BATCH_MAX) {
    throw new RonError('payload_too_large', `${messages.length} messages, the limit is ${BATCH_MAX}`);
  }
  for (const message of messages) requireMessage(message);
}

/** What an envelope adds to its plaintext, at most. */
export const ENVELOPE_BYTES_MAX = 2048;

export function requireWrap(plaintext: Uint8Array, aad: Uint8Array): void {
  requireBytes('the plaintext', plaintext.length, WRAP_BYTES_MAX);
  requireBytes('the additional data', aad.length, AAD_BYTES_MAX);
}

export function requireUnwrap(wrapped: Uint8Array, aad: Uint8Array): void {
  requireBytes('the wrapped key', wrapped.length, WRAP_BYTES_MAX + ENVELOPE_BYTES_MAX);
  requireBytes('the additional data', aad.length, AAD_BYTES_MAX);
}

export function requireDerive(label: string, bytes: number): void {
  if (label.length === 0 || label.length > LABEL_CHARS_MAX) {
    throw new RonError('validation', `a label has 1 to ${LABEL_CHARS_MAX} characters`);
  }
  if (!Number.isSafeInteger(bytes) || bytes < 1 || bytes > DERIVED_BYTES_MAX) {
    throw new RonError('validation', `1 to ${DERIVED_BYTES_MAX} bytes can be derived`);
  }
}

export function requireLabel(label: string): void {
  if (label.length > LABEL_CHARS_MAX) {
    throw new RonError('validation', `a label has at most ${LABEL_CHARS_MAX} characters`);
  }
}
