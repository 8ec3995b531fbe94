/**
 * Keys in a token behind any PKCS #11 module: an HSM, a smart card, SoftHSM, or a TPM through tpm2-pkcs11.
 *
 * Contract: keys are created in the token and never leave it. Calls block in dedicated threads, never the event loop. A dead
 * session is reopened by the next call. While the token does not respond, calls are refused immediately with `not_ready`,
 * except for one probe per backoff interval; `probe` is never refused.
 * `aes-256-gcm`: for each wrap the token derives a secret from a fresh salt, which becomes the AES key of one envelope (form
 * 03 of envelope.ts). No nonce has to be stored, and it does not depend on the token's own GCM.
 * Bound: `sessions` threads with one session each, `queue_max` waiting calls. Overflow: `busy`.
 * Cancellation: the caller gets the signal's reason immediately; the native call runs to its end. A call that takes longer
 * than `call_ms_max` is abandoned together with its thread.
 */
import { createHash } from 'node:crypto';
import { BlockingPool, Deadline, isRonError, orAborted, sched } from '@ron/kernel';
import { ALGORITHMS, type Alg } from '../algorithms/algorithms.ts';
import { Availability } from '../backend/availability.ts';
import {
  algOfName,
  classWith,
  unavailable,
  isKeyName,
  noSuchKey,
  requireAlg,
  requireBatch,
  requireDerive,
  requireLabel,
  requireMessage,
  requireUnwrap,
  requireUse,
  requireWrap,
  type Attestation,
  type ComputedIn,
  type Backend,
  type BackendState,
  type KeyHandle,
  type Signature,
} from '../backend/backend.ts';
import { FORM, openOnce, SALT_BYTES, sealOnce, splitEnvelope } from '../algorithms/envelope.ts';
import { expand } from '../algorithms/expand.ts';
import { lockOf, threadExited } from './module-lock.ts';
import { isUnavailable, OUTCOME, type TokenCall, type TokenConfig, type TokenFacts } from './token.ts';

const NAME_BYTES = 16;
const SESSIONS = 2;
const CLOSE_MS = 1000;
const WRAP_CONTEXT = 'ron-kms/wrap-secret/v1\n';

export interface Pkcs11BackendInit {
  /** The shared library of the module. */
  module: string;
  /** The label of the token. */
  token: string;
  pin: string;
  /** `tpm` when the module is tpm2-pkcs11. Default `pkcs11`. */
  name?: 'pkcs11' | 'tpm';
  /** Threads, each with a session. Use 1 for a TPM, which processes one command at a time. Default 2. */
  sessions?: number;
  /** Calls that may wait for a thread. Default 64. */
  queue_max?: number;
  /** After this time a native call is abandoned with its thread. Default 10 000. */
  call_ms_max?: number;
  signal: AbortSignal;
}

export class Pkcs11Backend implements Backend {
  readonly name: 'pkcs11' | 'tpm';
  readonly attestation_class: string;
  readonly algs: ReadonlySet<Alg>;
  readonly #facts: TokenFacts;
  readonly #calls: TokenCalls;

  private constructor(init: Pkcs11BackendInit, calls: TokenCalls, facts: TokenFacts) {
    this.name = init.name ?? 'pkcs11';
    this.attestation_class = `${this.name === 'tpm' ? 'tpm' : 'token'}:${facts.info.model}`;
    this.algs = new Set(facts.algs);
    this.#facts = facts;
    this.#calls = calls;
  }

  /** Rejects if the module cannot be loaded, the token is missing, or it refuses the PIN. */
  static async open(init: Pkcs11BackendInit): Promise<Pkcs11Backend> {
    const calls = new TokenCalls(init);
    try {
      return new Pkcs11Backend(init, calls, await calls.run<TokenFacts>('facts', [], init.signal));
    } catch (error) {
      await calls.close();
      throw error;
    }
  }

  attestationClassOf(alg: Alg): string {
    return classWith(this.attestation_class, computedIn(alg, this.#facts));
  }

  state(): BackendState {
    return this.#calls.state();
  }

  async create(alg: Alg, label: string, signal: AbortSignal): Promise<KeyHandle> {
    requireAlg(this.algs, alg, this.name);
    requireLabel(label);
    const key = `${alg}.${Buffer.from(sched.randomBytes(NAME_BYTES)).toString('hex')}`;
    await this.#calls.run('create', [key, alg, label], signal);
    return this.open(key, alg, signal);
  }

  async open(key: string, alg: Alg, signal: AbortSignal): Promise<KeyHandle> {
    if (algOfName(key) !== alg) throw noSuchKey();
    const der = await this.#calls.run<Uint8Array>('publicKey', [key], signal);
    const pubkey_b64 = Buffer.from(der).toString('base64');
    return { key, alg, public: der.length === 0 ? [] : [{ alg, pubkey_b64 }] };
  }

  async destroy(key: string, signal: AbortSignal): Promise<void> {
    if (!isKeyName(key)) return;
    await this.#calls.run('destroy', [key], signal);
    this.#calls.forgetHandles();
  }

  async sign(key: string, message: Uint8Array, signal: AbortSignal): Promise<Signature[]> {
    requireMessage(message);
    const [signatures = []] = await this.signMany(key, [message], signal);
    return signatures;
  }

  async signMany(key: string, messages: readonly Uint8Array[], signal: AbortSignal): Promise<Signature[][]> {
    requireUse(algOfName(key), 'sign');
    requireBatch(messages);
    const signatures = await this.#calls.run<Uint8Array[]>('sign', [key, messages], signal);
    return signatures.map((signature) => [{ alg: 'ed25519', signature }]);
  }

  async wrap(key: string, plaintext: Uint8Array, aad: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    requireUse(algOfName(key), 'wrap');
    requireWrap(plaintext, aad);
    const salt = sched.randomBytes(SALT_BYTES);
    return sealOnce(FORM.derived, await this.#wrapSecret(key, salt, signal), salt, plaintext, aad);
  }

  async unwrap(key: string, wrapped: Uint8Array, aad: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    requireUse(algOfName(key), 'wrap');
    requireUnwrap(wrapped, aad);
    const { prefix, ciphertext } = splitEnvelope(FORM.derived, wrapped);
    return openOnce(FORM.derived, await this.#wrapSecret(key, prefix, signal), ciphertext, aad);
  }

  async derive(key: string, label: string, bytes: number, signal: AbortSignal): Promise<Uint8Array> {
    requireUse(algOfName(key), 'derive');
    requireDerive(label, bytes);
    return expand((data) => this.#calls.run<Uint8Array>('hmac', [key, data], signal), label, bytes);
  }

  /**
   * The token's own description, the attributes of the objects in it, and where keys of each algorithm are computed. It is
   * unsigned, so it is as trustworthy as the module.
   */
  async attest(signal: AbortSignal): Promise<Attestation> {
    const facts = await this.#calls.run<TokenFacts>('facts', [], signal);
    const computed = facts.algs.map((alg) => [`computed ${alg}`, computedIn(alg, facts)] as const);
    return {
      attestation_class: this.attestation_class,
      evidence: {
        ...facts.info,
        sensitive: true,
        extractable: false,
        ...Object.fromEntries(computed),
        signed: false,
      },
      issued_ms: sched.wall_ms(),
    };
  }

  async probe(signal: AbortSignal): Promise<void> {
    await this.#calls.run('ping', [], signal, true);
  }

  close(): Promise<void> {
    return this.#calls.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  toJSON(): string {
    return `Pkcs11Backend(${this.#facts.info.label})`;
  }

  async #wrapSecret(key: string, salt: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    const seed = createHash('sha256').update(WRAP_CONTEXT).update(salt).digest();
    return this.#calls.run<Uint8Array>('hmac', [key, seed], signal);
  }
}

function computedIn(alg: Alg, { kept }: TokenFacts): ComputedIn {
  if (ALGORITHMS[alg].use === 'sign') return 'backend';
  if (kept === 'rsa') return 'process memory';
  return ALGORITHMS[alg].use === 'wrap' ? 'backend; the key of each envelope in process memory' : 'backend';
}

/** Calls to the threads, subject to the availability of the token. */
class TokenCalls {
  readonly #pool: BlockingPool;
  readonly #config: TokenConfig;
  readonly #call_ms_max: number;
  readonly #availability = new Availability();
  /** The outcome of the last call, written by the threads. */
  readonly #outcome = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  #generation = 0;
  #isClosed = false;

  constructor(init: Pkcs11BackendInit) {
    const { module, token, pin, sessions = SESSIONS } = init;
    const lock = lockOf(module);
    this.#config = { module, token, pin, lock, outcome: this.#outcome };
    this.#call_ms_max = init.call_ms_max ?? 10_000;
    // [kms I-7] Calls of the module may block for long: only these threads make them.
    this.#pool = new BlockingPool('pkcs11', {
      threads: sessions,
      queue_max: init.queue_max ?? 64,
      module: new URL('./worker.ts', import.meta.url),
      onThreadEnd: (thread) => threadExited(lock, thread),
    });
  }

  state(): BackendState {
    return this.#isClosed ? { ok: false, reason: 'the backend is closed' } : this.#availability.state();
  }

  async run<T>(fn: string, args: readonly unknown[], signal: AbortSignal, evenIfUnavailable = false): Promise<T> {
    signal.throwIfAborted();
    if (this.#isClosed) throw unavailable('the backend is closed');
    if (!evenIfUnavailable) this.#availability.admit();
    const deadline = Deadline.after('pkcs11', this.#call_ms_max);
    const call: TokenCall = { config: this.#config, generation: this.#generation };
    const job = this.#pool.run<T>(fn, [call, ...args], deadline.signal).finally(() => deadline.cancel());
    const seen = job.then(
      (value) => {
        this.#answered();
        return value;
      },
      (error: unknown) => this.#failed(error),
    );
    return orAborted(seen, signal);
  }

  /** Invalidates cached object handles: a token may reuse the handle of a destroyed object. */
  forgetHandles(): void {
    this.#generation += 1;
  }

  async close(): Promise<void> {
    if (this.#isClosed) return this.#pool.close();
    if (this.#availability.state().ok && this.#pool.threads > 0) await this.#closeSessions();
    this.#isClosed = true;
    await this.#pool.close();
  }

  /** Sessions would otherwise stay open until the process exits. Failures do not prevent the shutdown. */
  async #closeSessions(): Promise<void> {
    const deadline = Deadline.after('close', CLOSE_MS);
    await this.run('close', [], deadline.signal).catch(() => undefined);
    deadline.cancel();
  }

  /** Threads report in any order, so the shared word decides which outcome was the last. */
  #answered(): void {
    if (Atomics.load(this.#outcome, 0) === OUTCOME.answered) this.#availability.recordSuccess();
  }

  #failed(error: unknown): never {
    if (!isRonError(error) || !isUnavailable(error)) {
      if (!isRonError(error, 'busy')) this.#answered();
      throw error;
    }
    // The thread itself could not record these.
    if (error.code === 'timeout' || error.code === 'internal') Atomics.store(this.#outcome, 0, OUTCOME.unavailable);
    const failure = error.code === 'internal' ? unavailable('a thread of the PKCS #11 backend died', error) : error;
    if (Atomics.load(this.#outcome, 0) === OUTCOME.unavailable) this.#availability.recordFailure(failure);
    throw failure;
  }
}
