/**
 * The interface of a key backend. The suite in `test/contract.ts` runs against every backend.
 *
 * Contract: a private key never leaves the backend: no method returns one, and no error, log line or metric contains a
 * byte of one. A handle is valid until its key is destroyed, across restarts too if the backend is persistent. A call that
 * resolved has taken effect durably; a call that rejected with `not_ready` may be retried.
 * Bound: the limits below, enforced by every backend; `keys_max` keys. Overflow: `payload_too_large`, `storage_full`.
 * Cancellation: every call takes a signal and rejects with its reason. Native code that cannot be interrupted runs to its
 * end, and its result is discarded.
 *
 * | error | cause |
 * | --- | --- |
 * | `not_found` | the key does not exist, or has another algorithm |
 * | `validation` | the algorithm does not support the operation, or the envelope was not made by this key with this `aad` |
 * | `payload_too_large` | a limit below was exceeded |
 * | `rotate_needed` | the key has reached its safe number of uses |
 * | `not_ready` | the backend is unavailable; a later call may succeed |
 */
import { RonError } from '@ron/kernel';
import { ALGORITHMS, isAlg, type Alg, type SigningAlg, type Use } from '../algorithms/algorithms.ts';

export const MESSAGE_BYTES_MAX = 64 * 1024;
export const WRAP_BYTES_MAX = 64 * 1024;
export const AAD_BYTES_MAX = 64 * 1024;
export const LABEL_CHARS_MAX = 256;
export const DERIVED_BYTES_MAX = 1024;
/** Messages per `signMany` call. */
export const BATCH_MAX = 128;
export const KEY_CHARS_MAX = 128;
/** Default limit of keys per backend. */
export const KEYS_MAX = 65_536;

/** A public key: DER SubjectPublicKeyInfo in base64. */
export interface PublicPart {
  readonly alg: Alg;
  readonly pubkey_b64: string;
}

export interface KeyHandle {
  /** Identifies the key in its backend. Not secret; at most `KEY_CHARS_MAX` characters of `[A-Za-z0-9._:-]`. */
  readonly key: string;
  readonly alg: Alg;
  /** One per signature of the algorithm, in its order; empty for symmetric keys. */
  readonly public: readonly PublicPart[];
}

export interface Signature {
  readonly alg: SigningAlg;
  readonly signature: Uint8Array;
}

export interface BackendState {
  readonly ok: boolean;
  /** The cause for an operator; empty if `ok`. */
  readonly reason: string;
}

/**
 * Where the key that encrypts, signs or derives is computed. A backend that stores a key need not compute with it: a TPM
 * that cannot hold symmetric keys stores an RSA key, and the secret that is derived from it is in the memory of this process
 * during each call.
 */
export type ComputedIn = 'backend' | 'backend; the key of each envelope in process memory' | 'process memory';

/** The class of a key: that of its backend, with the place of computation if it is another one. */
export function classWith(attestation_class: string, computed: ComputedIn): string {
  const where = computed.replace(/^backend(; )?/, '');
  if (where === '') return attestation_class;
  return `${attestation_class}; ${computed === 'process memory' ? 'computed in process memory' : where}`;
}

/** Public evidence about a backend, for verifiers that do not trust this process. */
export interface Attestation {
  readonly attestation_class: string;
  /** The backend's own report: manufacturer, model, how keys are protected. */
  readonly evidence: Readonly<Record<string, string | number | boolean>>;
  readonly issued_ms: number;
}

export interface Backend extends AsyncDisposable {
  readonly name: 'memory' | 'file' | 'pkcs11' | 'tpm' | 'cloud';
  /** How keys are stored: `software:memory`, `token:<model>`, ... */
  readonly attestation_class: string;
  /** The same for keys of one algorithm, and where the effective key is computed if that is not where the key is stored. */
  attestationClassOf(alg: Alg): string;
  /** The algorithms that `create` accepts. */
  readonly algs: ReadonlySet<Alg>;
  /** Whether calls can succeed now. Cheap. */
  state(): BackendState;
  /** Creates a key. `label` is shown by the backend's own tools and need not be unique. */
  create(alg: Alg, label: string, signal: AbortSignal): Promise<KeyHandle>;
  /** Returns the handle of an existing key. */
  open(key: string, alg: Alg, signal: AbortSignal): Promise<KeyHandle>;
  /** Destroys a key permanently. Idempotent: destroying a missing key succeeds. */
  destroy(key: string, signal: AbortSignal): Promise<void>;
  /** Returns one signature per part of the algorithm, over exactly these bytes. */
  sign(key: string, message: Uint8Array, signal: AbortSignal): Promise<Signature[]>;
  /** Like `sign`, for up to `BATCH_MAX` messages; all or none. */
  signMany(key: string, messages: readonly Uint8Array[], signal: AbortSignal): Promise<Signature[][]>;
  wrap(key: string, plaintext: Uint8Array, aad: Uint8Array, signal: AbortSignal): Promise<Uint8Array>;
  unwrap(key: string, wrapped: Uint8Array, aad: Uint8Array, signal: AbortSignal): Promise<Uint8Array>;
  /** Deterministic: the same key and label always give the same bytes. Other labels give independent bytes. */
  derive(key: string, label: string, bytes: number, signal: AbortSignal): Promise<Uint8Array>;
  attest?(signal: AbortSignal): Promise<Attestation>;
  /** Probes sessions and connections and reopens dead ones. The service calls it periodically, with backoff. */
  probe?(signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

const KEY_PATTERN = /^[A-Za-z0-9._:-]+$/;

/** Whether the text is a valid key name. Untrusted names must pass this check first. */
export function isKeyName(key: string): boolean {
  return key.length <= KEY_CHARS_MAX && KEY_PATTERN.test(key);
}

/**
 * The algorithm of a key whose backend stores only the name, `<alg>.<id>`: a token does not record the use of a secret key.
 * Throws `not_found` for any other name.
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
  return new RonError('validation', 'the data was not wrapped by this key with this additional data');
}

export function unavailable(what: string, cause?: unknown): RonError {
  return new RonError('not_ready', what, { retry_after_ms: 1000, ...(cause === undefined ? {} : { cause }) });
}

/** Throws `validation` unless the algorithm is for this use. */
export function requireUse(alg: Alg, use: Use): void {
  if (ALGORITHMS[alg].use !== use) throw new RonError('validation', `keys of ${alg} do not ${use}`);
}

export function requireAlg(algs: ReadonlySet<Alg>, alg: Alg, name: string): void {
  if (!algs.has(alg)) throw new RonError('validation', `the backend ${name} does not support ${alg}`);
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

/** Upper bound of the envelope's overhead. */
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
