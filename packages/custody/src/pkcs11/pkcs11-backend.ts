/**
 * Keys in a token behind any PKCS #11 module: an HSM, a smart card, SoftHSM, or a TPM through tpm2-pkcs11.
 *
 * Promise: keys are made in the token and never leave it. Calls block in threads of their own, never the event loop. A
 * session that dies is reopened by the next call; while the token does not answer, calls are refused at once with
 * `not_ready`, and one at a time, after a jittered and growing pause, tries again. So does `keep`.
 * `aes-256-gcm` here: for each wrap the token makes a secret of a fresh salt, and that is the AES key of one envelope
 * (form 03 of envelope.ts). No nonce has to be remembered, and it works on tokens whose own GCM differs.
 * Bound: `sessions` threads with one session each, `queue_max` calls that wait. Overflow: `busy`.
 * Cancellation: the caller is answered at once; the call in native code ends by itself. One that takes longer than
 * `call_ms_max` is given up with its thread.
 */
import { createHash } from 'node:crypto';
import { BlockingPool, Deadline, isRonError, orAborted, sched } from '@ron/kernel';
import type { Alg } from '../algorithms/algorithms.ts';
import { Availability } from '../backend/availability.ts';
import {
  algOfName,
  awayError,
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
  type Backend,
  type BackendState,
  type KeyHandle,
  type Signature,
} from '../backend/backend.ts';
import { FORM, openOnce, SALT_BYTES, sealOnce, splitEnvelope } from '../algorithms/envelope.ts';
import { expand } from '../algorithms/expand.ts';
import { gateOf, gone } from './module-gate.ts';
import { isAway, OUTCOME, type TokenCall, type TokenConfig, type TokenFacts } from './token.ts';

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
  /** Threads, each with a session. One for a TPM, which does one thing at a time anyway. Default 2. */
  sessions?: number;
  /** Calls that may wait for a thread. Default 64. */
  queue_max?: number;
  /** After this a call in native code is given up, with its thread. Default 10 000. */
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
    this.attestation_class = `token:${facts.info.model}`;
    this.algs = new Set(facts.algs);
    this.#facts = facts;
    this.#calls = calls;
  }

  /** Rejects when the module cannot be loaded, the token is not there, or it refuses the PIN. */
  static async open(init: Pkcs11BackendInit): Promise<Pkcs11Backend> {
    const calls = new TokenCalls(init);
    try {
      return new Pkcs11Backend(init, calls, await calls.run<TokenFacts>('facts', [], init.signal));
    } catch (error) {
      await calls.close();
      throw error;
    }
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

  /** What the token says about itself, and how keys are made in it. No token signs this: it is as good as the module. */
  async attest(signal: AbortSignal): Promise<Attestation> {
    const { info } = await this.#calls.run<TokenFacts>('facts', [], signal);
    return {
      attestation_class: this.attestation_class,
      evidence: { ...info, sensitive: true, extractable: false, signed: false },
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

/** Calls to the threads, while it makes sense to make them. */
class TokenCalls {
  readonly #pool: BlockingPool;
  readonly #config: TokenConfig;
  readonly #call_ms_max: number;
  readonly #availability = new Availability();
  /** How the last call ended, written by the threads. */
  readonly #outcome = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  #generation = 0;
  #isClosed = false;

  constructor(init: Pkcs11BackendInit) {
    const { module, token, pin, sessions = SESSIONS } = init;
    const gate = gateOf(module);
    this.#config = { module, token, pin, gate, outcome: this.#outcome };
    this.#call_ms_max = init.call_ms_max ?? 10_000;
    this.#pool = new BlockingPool('pkcs11', {
      threads: sessions,
      queue_max: init.queue_max ?? 64,
      module: new URL('./worker.ts', import.meta.url),
      onThreadEnd: (thread) => gone(gate, thread),
    });
  }

  state(): BackendState {
    return this.#isClosed ? { ok: false, reason: 'it is closed' } : this.#availability.state();
  }

  async run<T>(fn: string, args: readonly unknown[], signal: AbortSignal, evenIfAway = false): Promise<T> {
    signal.throwIfAborted();
    if (this.#isClosed) throw awayError('the token is closed');
    if (!evenIfAway) this.#availability.admit();
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

  /** Handles that threads remember may come to mean something else. */
  forgetHandles(): void {
    this.#generation += 1;
  }

  async close(): Promise<void> {
    if (this.#isClosed) return this.#pool.close();
    if (this.#availability.state().ok && this.#pool.threads > 0) await this.#closeSessions();
    this.#isClosed = true;
    await this.#pool.close();
  }

  /** Without it sessions stay open until the process ends; a token that does not let us is no reason not to end. */
  async #closeSessions(): Promise<void> {
    const deadline = Deadline.after('close', CLOSE_MS);
    await this.run('close', [], deadline.signal).catch(() => undefined);
    deadline.cancel();
  }

  /** Threads are heard in any order: what the token did last is what they left, not what came last. */
  #answered(): void {
    if (Atomics.load(this.#outcome, 0) === OUTCOME.answered) this.#availability.answered();
  }

  #failed(error: unknown): never {
    if (!isRonError(error) || !isAway(error)) {
      if (!isRonError(error, 'busy')) this.#answered();
      throw error;
    }
    // Of these the thread could not tell itself.
    if (error.code === 'timeout' || error.code === 'internal') Atomics.store(this.#outcome, 0, OUTCOME.away);
    const away = error.code === 'internal' ? awayError('a thread of the token died', error) : error;
    if (Atomics.load(this.#outcome, 0) === OUTCOME.away) this.#availability.failed(away);
    throw away;
  }
}
