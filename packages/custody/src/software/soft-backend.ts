/**
 * A backend whose keys are in this process; a `KeyStore` persists them.
 *
 * Contract: see backend.ts. `signMany` runs in dedicated threads, so it blocks neither the event loop nor the platform's
 * thread pool, which file I/O needs; concurrent calls are batched. `sign` runs immediately and never waits behind a batch,
 * because it signs audit checkpoints.
 * Bound: `keys_max` keys; `WAITING_MAX` waiting signatures. Overflow: `storage_full`, `busy`.
 * Cancellation: checked before the work begins. Work in a thread takes a few milliseconds, so it completes and its result
 * is discarded: replacing the thread would cost more.
 */
import type { KeyObject } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { assert, RonError, sched } from '@ron/kernel';
import { ALGS, signCost_us, type Alg, type Use } from '../algorithms/algorithms.ts';
import {
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
  type Backend,
  type BackendState,
  type KeyHandle,
  type Signature,
} from '../backend/backend.ts';
import { distinct } from '../threads/check-threads.ts';
import { NonceTracker } from './nonces.ts';
import { softDerive, newSecret, publicParts, softSign, softKey, softUnwrap, softWrap } from './soft-keys.ts';
import type { SoftKey } from './soft-keys.ts';
import { packed, unpacked } from '../threads/packed.ts';
import { ThreadBatches } from '../threads/thread-batches.ts';

const WAITING_MAX = 4096;
const THREADS_MAX = 4;
/** Signatures per turn of the event loop while no thread is running. */
const AT_ONCE_MAX = 32;
const KEY_BYTES = 16;
/** Keys that are examined to unload one. */
const UNLOAD_TRIES = 64;

/** A stored key. */
export interface StoredKey {
  readonly alg: Alg;
  /** The first nonce number that was never reserved. */
  readonly spent: number;
  /** A copy of the secret, which the caller zeroes. */
  secret(): Uint8Array;
}

/** Stores keys. A method resolves when the change is as durable as the store promises. */
export interface KeyStore {
  /** Keys that stay loaded; `get` finds the others again. */
  readonly loaded_max: number;
  get(key: string): StoredKey | undefined;
  /** Stores a copy of the secret. */
  add(key: string, alg: Alg, label: string, secret: Uint8Array, signal: AbortSignal): Promise<void>;
  remove(key: string, signal: AbortSignal): Promise<void>;
  /** Records durably that nonce numbers below `spent` are used. */
  reserve(key: string, spent: number): Promise<void>;
  close(): Promise<void>;
}

interface LoadedKey {
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
  /** Loaded keys, as key objects, least recently loaded first; at most `loaded_max` and those that are reserving nonces. */
  readonly #loaded = new Map<string, LoadedKey>();
  readonly #threads = new ThreadBatches<ToSign, Uint8Array>({
    name: 'custody.sign',
    threads: Math.min(THREADS_MAX, availableParallelism()),
    queue_max: WAITING_MAX,
    module: new URL('../threads/crypto-thread.ts', import.meta.url),
    fn: 'signAll',
    pack: packMessages,
    unpack: unpacked,
  });
  #isClosed = false;

  constructor(init: SoftBackendInit) {
    this.name = init.name;
    this.attestation_class = init.attestation_class;
    this.#store = init.store;
  }

  attestationClassOf(): string {
    return this.attestation_class;
  }

  state(): BackendState {
    return this.#isClosed ? { ok: false, reason: 'the backend is closed' } : { ok: true, reason: '' };
  }

  async create(alg: Alg, label: string, signal: AbortSignal): Promise<KeyHandle> {
    this.#begin(signal);
    requireAlg(this.algs, alg, this.name);
    requireLabel(label);
    const key = Buffer.from(sched.randomBytes(KEY_BYTES)).toString('hex');
    const secret = newSecret(alg);
    try {
      await this.#store.add(key, alg, label, secret, signal);
      return this.#load(key, alg, 0, secret).handle;
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
    this.#loaded.delete(key);
  }

  async sign(key: string, message: Uint8Array, signal: AbortSignal): Promise<Signature[]> {
    const { soft } = this.#for(key, 'sign', signal);
    requireMessage(message);
    return await softSign(soft, message);
  }

  async signMany(key: string, messages: readonly Uint8Array[], signal: AbortSignal): Promise<Signature[][]> {
    const { handle, soft } = this.#for(key, 'sign', signal);
    requireBatch(messages);
    return await this.#sign(handle.alg, soft, messages, signal);
  }

  async wrap(key: string, plaintext: Uint8Array, aad: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    const { handle, soft, nonces } = this.#for(key, 'wrap', signal);
    requireWrap(plaintext, aad);
    const nonce = handle.alg === 'aes-256-gcm' ? await nonces.next(signal) : new Uint8Array(0);
    return softWrap(soft, nonce, plaintext, aad);
  }

  async unwrap(key: string, wrapped: Uint8Array, aad: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    const { soft } = this.#for(key, 'wrap', signal);
    requireUnwrap(wrapped, aad);
    return softUnwrap(soft, wrapped, aad);
  }

  async derive(key: string, label: string, bytes: number, signal: AbortSignal): Promise<Uint8Array> {
    const { soft } = this.#for(key, 'derive', signal);
    requireDerive(label, bytes);
    return softDerive(soft, label, bytes);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#loaded.clear();
    await this.#threads.close();
    await this.#store.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #sign(alg: Alg, soft: SoftKey, messages: readonly Uint8Array[], signal: AbortSignal): Promise<Signature[][]> {
    assert(soft.use === 'sign', 'the key signs');
    if (!this.#threads.isReady) return await signOnEventLoop(soft, messages, signal);
    const { signers } = soft;
    const items = messages.flatMap((message) => signers.map(({ key }) => ({ key, message })));
    const cost_us = messages.reduce((sum, message) => sum + signCost_us(alg, message.length), 0);
    const signed = await this.#threads.run(items, cost_us, signal);
    return messages.map((_, at) =>
      signers.map((signer, part) => ({ alg: signer.alg, signature: signed[at * signers.length + part]! })),
    );
  }

  #begin(signal: AbortSignal): void {
    signal.throwIfAborted();
    if (this.#isClosed) throw unavailable(`the backend ${this.name} is closed`);
  }

  #for(key: string, use: Use, signal: AbortSignal): LoadedKey {
    this.#begin(signal);
    const live = this.#find(key);
    requireUse(live.handle.alg, use);
    return live;
  }

  #find(key: string): LoadedKey {
    const live = this.#loaded.get(key);
    if (live !== undefined) return live;
    const stored = isKeyName(key) ? this.#store.get(key) : undefined;
    if (stored === undefined) throw noSuchKey();
    const secret = stored.secret();
    try {
      return this.#load(key, stored.alg, stored.spent, secret);
    } finally {
      secret.fill(0);
    }
  }

  #load(key: string, alg: Alg, spent: number, secret: Uint8Array): LoadedKey {
    const soft = softKey(alg, secret);
    const nonces = new NonceTracker({ spent, reserve: (upto) => this.#store.reserve(key, upto) });
    const live: LoadedKey = { handle: { key, alg, public: publicParts(soft) }, soft, nonces };
    // Two counters for one key would return the same nonces.
    assert(!this.#loaded.has(key), 'a key is loaded once');
    this.#loaded.set(key, live);
    if (this.#loaded.size > this.#store.loaded_max) this.#unload();
    return live;
  }

  /** A key that is loaded again loses the rest of its block of nonces. */
  #unload(): void {
    let tries = 0;
    for (const [key, { nonces }] of this.#loaded) {
      if (++tries > UNLOAD_TRIES) return;
      if (!nonces.isIdle) continue;
      this.#loaded.delete(key);
      return;
    }
  }
}

/** Used until a thread runs: signs on the event loop and yields between signatures. */
async function signOnEventLoop(
  soft: SoftKey,
  messages: readonly Uint8Array[],
  signal: AbortSignal,
): Promise<Signature[][]> {
  const signed: Signature[][] = [];
  for (const message of messages) {
    signed.push(await softSign(soft, message));
    if (signed.length % AT_ONCE_MAX === 0) await sched.pause('sign');
    signal.throwIfAborted();
  }
  return signed;
}

interface ToSign {
  readonly key: KeyObject;
  readonly message: Uint8Array;
}

function packMessages(items: readonly ToSign[]): readonly unknown[] {
  const { all, which } = distinct(items.map(({ key }) => key));
  return [all, which, packed(items.map(({ message }) => message))];
}

/** For stores that have reached their limit. */
export function noRoom(keys_max: number): RonError {
  return new RonError('storage_full', `the backend has reached its limit of ${keys_max} keys`);
}
