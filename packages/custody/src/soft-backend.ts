/**
 * A backend whose keys are in this process; where they are kept beyond it is the business of its store.
 *
 * Promise: see backend.ts. A batch leaves the event loop to others: ML-DSA is signed on the platform's thread pool, many
 * Ed25519 signatures in a thread of ours.
 * Bound: `keys_max` keys; `THREAD_QUEUE_MAX` batches that wait. Overflow: `storage_full`, `busy`.
 * Cancellation: looked at before anything is made and between the ML-DSA signatures of a batch. A batch of Ed25519 is
 * done in a few milliseconds and is thrown away: ending its thread would cost the next one more.
 */
import type { KeyObject } from 'node:crypto';
import { assert, BlockingPool, NEVER, orAborted, RonError, sched } from '@ron/kernel';
import { ALGS, type Alg, type Use } from './algorithms.ts';
import {
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
  type Backend,
  type BackendState,
  type KeyHandle,
  type Signature,
} from './backend.ts';
import { NonceTracker } from './nonces.ts';
import { ED25519_BYTES } from './sign-thread.ts';
import { deriveSoftly, newSecret, publicParts, signSoftly, softKey, unwrapSoftly, wrapSoftly } from './soft-keys.ts';
import type { SoftKey } from './soft-keys.ts';

/** ML-DSA signatures of one batch that are under way at once: more than the cores of a small machine gain nothing. */
const LANES = 2;
/** From so many Ed25519 signatures on, the way to a thread costs less than making them here. */
const THREAD_MESSAGES_MIN = 4;
const THREAD_QUEUE_MAX = 256;
const KEY_BYTES = 16;

/** A key at rest. */
export interface StoredKey {
  readonly alg: Alg;
  /** The first nonce number that was never reserved. */
  readonly spent: number;
  /** A copy of the secret, which the caller zeroes. */
  secret(): Uint8Array;
}

/** Where keys are kept. Its methods resolve when the change will survive whatever the store promises to survive. */
export interface KeyStore {
  get(key: string): StoredKey | undefined;
  /** Keeps a copy of the secret. */
  add(key: string, alg: Alg, label: string, secret: Uint8Array, signal: AbortSignal): Promise<void>;
  remove(key: string, signal: AbortSignal): Promise<void>;
  /** Makes it last that nonce numbers below `spent` are used up. */
  reserve(key: string, spent: number): Promise<void>;
  close(): Promise<void>;
}

interface Live {
  readonly handle: KeyHandle;
  readonly soft: SoftKey;
  readonly nonces: NonceTracker;
}

export interface SoftBackendInit {
  name: 'memory' | 'file';
  attestation_class: string;
  store: KeyStore;
}

export class SoftBackend implements Backend {
  readonly name: 'memory' | 'file';
  readonly attestation_class: string;
  readonly algs: ReadonlySet<Alg> = new Set(ALGS);
  readonly #store: KeyStore;
  /** Keys that were used, as key objects. As many as the store holds at most. */
  readonly #live = new Map<string, Live>();
  /** Its thread starts with the first batch. */
  readonly #thread = new BlockingPool('custody.sign', {
    threads: 1,
    queue_max: THREAD_QUEUE_MAX,
    module: new URL('./sign-thread.ts', import.meta.url),
  });
  #isClosed = false;

  constructor(init: SoftBackendInit) {
    this.name = init.name;
    this.attestation_class = init.attestation_class;
    this.#store = init.store;
  }

  state(): BackendState {
    return this.#isClosed ? { ok: false, reason: 'it is closed' } : { ok: true, reason: '' };
  }

  async create(alg: Alg, label: string, signal: AbortSignal): Promise<KeyHandle> {
    this.#begin(signal);
    requireAlg(this.algs, alg, this.name);
    requireLabel(label);
    const key = Buffer.from(sched.randomBytes(KEY_BYTES)).toString('hex');
    const secret = newSecret(alg);
    try {
      await this.#store.add(key, alg, label, secret, signal);
      return this.#enliven(key, alg, 0, secret).handle;
    } finally {
      secret.fill(0);
    }
  }

  async open(key: string, alg: Alg, signal: AbortSignal): Promise<KeyHandle> {
    this.#begin(signal);
    const { handle } = this.#find(key);
    if (handle.alg !== alg) throw noSuchKey();
    return handle;
  }

  async destroy(key: string, signal: AbortSignal): Promise<void> {
    this.#begin(signal);
    if (!isKeyName(key)) return;
    await this.#store.remove(key, signal);
    this.#live.delete(key);
  }

  async sign(key: string, message: Uint8Array, signal: AbortSignal): Promise<Signature[]> {
    const { soft } = this.#for(key, 'sign', signal);
    requireMessage(message);
    return signSoftly(soft, message);
  }

  async signMany(key: string, messages: readonly Uint8Array[], signal: AbortSignal): Promise<Signature[][]> {
    const { soft } = this.#for(key, 'sign', signal);
    requireBatch(messages);
    const fast = messages.length < THREAD_MESSAGES_MIN ? undefined : onlyEd25519(soft);
    if (fast !== undefined) return await this.#signInThread(fast, messages, signal);
    const signed: Signature[][] = Array.from({ length: messages.length });
    const rest = messages.entries();
    const lane = async (): Promise<void> => {
      for (const [index, message] of rest) {
        signal.throwIfAborted();
        signed[index] = await signSoftly(soft, message);
      }
    };
    await Promise.all(Array.from({ length: LANES }, lane));
    return signed;
  }

  async wrap(key: string, plaintext: Uint8Array, aad: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    const { handle, soft, nonces } = this.#for(key, 'wrap', signal);
    requireWrap(plaintext, aad);
    const nonce = handle.alg === 'aes-256-gcm' ? await nonces.next(signal) : new Uint8Array(0);
    return wrapSoftly(soft, nonce, plaintext, aad);
  }

  async unwrap(key: string, wrapped: Uint8Array, aad: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    const { soft } = this.#for(key, 'wrap', signal);
    requireUnwrap(wrapped, aad);
    return unwrapSoftly(soft, wrapped, aad);
  }

  async derive(key: string, label: string, bytes: number, signal: AbortSignal): Promise<Uint8Array> {
    const { soft } = this.#for(key, 'derive', signal);
    requireDerive(label, bytes);
    return deriveSoftly(soft, label, bytes);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#live.clear();
    await this.#thread.close();
    await this.#store.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #signInThread(key: KeyObject, messages: readonly Uint8Array[], signal: AbortSignal): Promise<Signature[][]> {
    let end = 0;
    const ends = messages.map((message) => (end += message.length));
    const args = [key, Buffer.concat(messages), ends];
    const signatures = await orAborted(this.#thread.run<Uint8Array>('signEach', args, NEVER), signal);
    return messages.map((_, index) => {
      const at = index * ED25519_BYTES;
      return [{ alg: 'ed25519', signature: signatures.subarray(at, at + ED25519_BYTES) }];
    });
  }

  #begin(signal: AbortSignal): void {
    signal.throwIfAborted();
    if (this.#isClosed) throw awayError(`the backend ${this.name} is closed`);
  }

  #for(key: string, use: Use, signal: AbortSignal): Live {
    this.#begin(signal);
    const live = this.#find(key);
    requireUse(live.handle.alg, use);
    return live;
  }

  #find(key: string): Live {
    const live = this.#live.get(key);
    if (live !== undefined) return live;
    const stored = isKeyName(key) ? this.#store.get(key) : undefined;
    if (stored === undefined) throw noSuchKey();
    const secret = stored.secret();
    try {
      return this.#enliven(key, stored.alg, stored.spent, secret);
    } finally {
      secret.fill(0);
    }
  }

  #enliven(key: string, alg: Alg, spent: number, secret: Uint8Array): Live {
    const soft = softKey(alg, secret);
    const nonces = new NonceTracker({ spent, reserve: (upto) => this.#store.reserve(key, upto) });
    const live: Live = { handle: { key, alg, public: publicParts(soft) }, soft, nonces };
    // Two trackers of one key would give out the same numbers.
    assert(!this.#live.has(key), 'a key is brought to life once');
    this.#live.set(key, live);
    return live;
  }
}

/** The key, when a batch of its signatures can be made in a thread: nothing but Ed25519. */
function onlyEd25519(soft: SoftKey): KeyObject | undefined {
  if (soft.use !== 'sign' || soft.signers.length !== 1) return undefined;
  const [signer] = soft.signers;
  return signer?.alg === 'ed25519' ? signer.key : undefined;
}

/** For stores: the place is full. */
export function noRoom(keys_max: number): RonError {
  return new RonError('storage_full', `the backend holds ${keys_max} keys, and no more fit`);
}
