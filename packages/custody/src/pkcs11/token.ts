/**
 * One session with one token, in a thread of its own. It is kept over calls and comes back when it dies.
 *
 * Promise: a call that fails because the session, the login or a handle is no longer good is made once more in a new
 * session, and then, if it works for no other thread either, once more after the module was started anew; when that fails
 * too, the token is away (`not_ready`). The module is started and ended only while no thread is in it (module-gate.ts).
 * A PIN that the token refused is never tried again by this process, for the token would lock itself. Keys are made so
 * that the token never gives them out, and one that would is destroyed at once.
 * Bound: one session; `HANDLES_MAX` object handles are remembered. Cancellation: none; calls block.
 */
import { createHash, createHmac } from 'node:crypto';
import { RonError } from '@ron/kernel';
import type { Alg } from '../algorithms/algorithms.ts';
import { algOfName, awayError, noSuchKey, requireUse } from '../backend/backend.ts';
import { CKA, CKK, CKM, CKO, CKR, CKU_USER, nameOfResult } from './constants.ts';
import { Cryptoki, CryptokiError, type Handle, type TokenInfo } from './cryptoki.ts';
import { ModuleGate } from './module-gate.ts';
import {
  algsOf,
  byName,
  findKey,
  generateEdwards,
  generateSecret,
  HMAC_BYTES,
  isTrue,
  LOST,
  requireLogin,
  RSA_BITS,
  search,
} from './objects.ts';

export interface TokenConfig {
  /** The shared library. */
  readonly module: string;
  /** The label of the token. */
  readonly token: string;
  readonly pin: string;
  /** Of the module, shared by all threads of this process: `gateOf`. */
  readonly gate: SharedArrayBuffer;
  /** One word: how the last call of any thread ended. */
  readonly outcome: Int32Array<SharedArrayBuffer>;
}

export const OUTCOME = { answered: 0, away: 1 } as const;

/** What says something about the token, and not about the request. */
const AWAY_CODES: readonly string[] = ['not_ready', 'timeout', 'internal', 'unhealthy'];

export const isAway = (error: RonError): boolean => AWAY_CODES.includes(error.code);

/** With every call: a number that changes when a key was destroyed, for then handles may come to mean something else. */
export interface TokenCall {
  readonly config: TokenConfig;
  readonly generation: number;
}

export interface TokenFacts {
  readonly info: TokenInfo;
  readonly algs: readonly Alg[];
}

/**
 * How a token keeps a secret. One that makes no symmetric keys (a TPM behind tpm2-pkcs11) keeps an RSA key instead: its
 * signature of a fixed text is always the same and nobody else can make it, so its hash is a secret like any other.
 */
type Kept = 'hmac' | 'rsa';

interface KeyObject {
  readonly alg: Alg;
  readonly handle: Handle;
  readonly kept: Kept;
}

const HANDLES_MAX = 4096;
const TRIES_MAX = 3;
/** How long to wait until no other thread is in the module: to start it, to end it. */
const START_WAIT_MS = 200;
const END_WAIT_MS = 500;
const SIGNATURE_BYTES = 64;
const RSA_SECRET_TEXT = 'ron-kms/rsa-secret/v1\n';
const PUBLIC_BYTES = 32;
const SPKI_PREFIX = Buffer.from('302a300506032b6570032100', 'hex');

const REFUSED_PINS = new Set<number>([
  CKR.PIN_INCORRECT,
  CKR.PIN_INVALID,
  CKR.PIN_LEN_RANGE,
  CKR.PIN_EXPIRED,
  CKR.PIN_LOCKED,
]);

export class Token {
  readonly #config: TokenConfig;
  readonly #gate: ModuleGate;
  /** Of the module, when the session was opened. */
  #restarts = 0;
  #cryptoki: Cryptoki | undefined;
  #session: Handle | undefined;
  #slot: Handle | undefined;
  #pinRefused: RonError | undefined;
  readonly #objects = new Map<string, KeyObject>();
  #generation = 0;

  constructor(config: TokenConfig) {
    this.#config = config;
    this.#gate = new ModuleGate(config.gate);
  }

  /** Forgets handles of an older generation. */
  useGeneration(generation: number): void {
    if (generation !== this.#generation) this.#objects.clear();
    this.#generation = generation;
  }

  facts(): TokenFacts {
    return this.#run((cryptoki) => {
      const slot = this.#slot as Handle;
      return { info: cryptoki.tokenInfo(slot), algs: algsOf(cryptoki.mechanisms(slot)) };
    });
  }

  ping(): void {
    this.#run(requireLogin);
  }

  /** Makes a key with this name. */
  create(name: string, alg: Alg, label: string): void {
    this.#run((cryptoki, session) => {
      this.#destroyAll(cryptoki, session, name);
      const handle =
        alg === 'ed25519'
          ? generateEdwards(cryptoki, session, name, label)
          : generateSecret(cryptoki, session, name, label, cryptoki.mechanisms(this.#slot as Handle));
      const leaks = isTrue(cryptoki, session, handle, CKA.EXTRACTABLE);
      if (!leaks && isTrue(cryptoki, session, handle, CKA.SENSITIVE)) return;
      this.#destroyAll(cryptoki, session, name);
      throw new RonError('validation', `the token makes keys of ${alg} that it would give out: they are not used`);
    });
  }

  /** The public key of a name in DER; empty for a secret key. Throws `not_found`. */
  publicKey(name: string): Uint8Array {
    return this.#run((cryptoki, session) => {
      const { alg } = this.#find(cryptoki, session, name);
      if (alg !== 'ed25519') return new Uint8Array(0);
      const [handle] = search(cryptoki, session, [...byName(name), [CKA.CLASS, CKO.PUBLIC_KEY]]);
      if (handle === undefined) throw noSuchKey();
      const point = cryptoki.attribute(session, handle, CKA.EC_POINT, 64);
      // An OCTET STRING by the standard; some modules give the bare point.
      return Buffer.concat([SPKI_PREFIX, point.subarray(point.length - PUBLIC_BYTES)]);
    });
  }

  destroy(name: string): void {
    this.#run((cryptoki, session) => this.#destroyAll(cryptoki, session, name));
  }

  sign(name: string, messages: readonly Uint8Array[]): Uint8Array[] {
    return this.#run((cryptoki, session) => {
      const { alg, handle } = this.#find(cryptoki, session, name);
      requireUse(alg, 'sign');
      return messages.map((message) => cryptoki.sign(session, CKM.EDDSA, handle, message, SIGNATURE_BYTES));
    });
  }

  /** HMAC-SHA256 under a key for deriving or wrapping. */
  hmac(name: string, data: Uint8Array): Uint8Array {
    return this.#run((cryptoki, session) => {
      const { alg, handle, kept } = this.#find(cryptoki, session, name);
      if (alg === 'ed25519') requireUse(alg, 'derive');
      if (kept === 'hmac') return cryptoki.sign(session, CKM.SHA256_HMAC, handle, data, HMAC_BYTES);
      const text = Buffer.from(`${RSA_SECRET_TEXT}${name}`);
      const signature = cryptoki.sign(session, CKM.SHA256_RSA_PKCS, handle, text, RSA_BITS / 8);
      const secret = createHash('sha256').update(signature).digest();
      const made = createHmac('sha256', secret).update(data).digest();
      signature.fill(0);
      secret.fill(0);
      return made;
    });
  }

  /**
   * Ends every session of this process with the token: those of threads that are gone would stay open otherwise. Not while
   * another thread is in a call: it would lose its session under it.
   */
  close(): void {
    const slot = this.#slot;
    if (slot !== undefined) this.#gate.alone(END_WAIT_MS, () => this.#cryptoki?.closeAllSessions(slot));
    this.#drop();
  }

  /** Does the work, and leaves word of how the token took it. */
  #run<T>(work: (cryptoki: Cryptoki, session: Handle) => T): T {
    const { outcome } = this.#config;
    try {
      const done = this.#tries(work);
      Atomics.store(outcome, 0, OUTCOME.answered);
      return done;
    } catch (error) {
      Atomics.store(outcome, 0, error instanceof RonError && !isAway(error) ? OUTCOME.answered : OUTCOME.away);
      throw error;
    }
  }

  /** Every work can be repeated: `create` clears away what an earlier try may have left. */
  #tries<T>(work: (cryptoki: Cryptoki, session: Handle) => T): T {
    const { worked, restarts } = this.#gate;
    for (let tries = 1; ; tries++) {
      try {
        return this.#attempt(work);
      } catch (error) {
        if (!(error instanceof CryptokiError)) throw error;
        if (!LOST.has(error.result) || tries === TRIES_MAX) throw this.#explain(error);
        const isHopeless = tries > 1 && this.#gate.worked === worked && this.#gate.restarts === restarts;
        if (isHopeless && !this.#startAnew()) throw this.#explain(error);
      }
    }
  }

  #attempt<T>(work: (cryptoki: Cryptoki, session: Handle) => T): T {
    if (this.#pinRefused !== undefined) throw this.#pinRefused;
    const cryptoki = (this.#cryptoki ??= load(this.#config.module));
    if (this.#session === undefined) this.#start(cryptoki);
    return this.#gate.among(() => {
      if (this.#restarts !== this.#gate.restarts) this.#drop();
      try {
        return work(cryptoki, this.#open(cryptoki));
      } catch (error) {
        if (error instanceof CryptokiError && LOST.has(error.result)) this.#forget();
        throw error;
      }
    });
  }

  /** Two that start a module at once may break it. If somebody stays in a call, then it has been started. */
  #start(cryptoki: Cryptoki): void {
    this.#gate.alone(START_WAIT_MS, () => cryptoki.initialize());
  }

  #open(cryptoki: Cryptoki): Handle {
    if (this.#session !== undefined) return this.#session;
    const { restarts } = this.#gate;
    const slot = cryptoki.slots().find((each) => labelOf(cryptoki, each) === this.#config.token);
    if (slot === undefined) throw new CryptokiError('C_GetSlotList', CKR.TOKEN_NOT_PRESENT);
    const session = cryptoki.openSession(slot);
    this.#logIn(cryptoki, session);
    this.#slot = slot;
    this.#session = session;
    this.#restarts = restarts;
    return session;
  }

  #logIn(cryptoki: Cryptoki, session: Handle): void {
    try {
      cryptoki.login(session, CKU_USER, this.#config.pin);
    } catch (error) {
      if (error instanceof CryptokiError && REFUSED_PINS.has(error.result)) {
        const message = `the token refused the PIN (${nameOfResult(error.result)}): it is not tried again`;
        this.#pinRefused = new RonError('unhealthy', message, { op: 'login' });
        throw this.#pinRefused;
      }
      throw error;
    }
  }

  /** The session is not good any more. */
  #forget(): void {
    const session = this.#session;
    this.#drop();
    if (session === undefined) return;
    try {
      this.#cryptoki?.closeSession(session);
    } catch {
      // It was dead already, which is why it is forgotten.
    }
  }

  /** There is no such session: its number may be another's by now. */
  #drop(): void {
    this.#session = undefined;
    this.#slot = undefined;
    this.#objects.clear();
  }

  /** Some modules keep what they should have let go of, and nothing else makes them. False when a call hangs in it. */
  #startAnew(): boolean {
    return this.#gate.alone(END_WAIT_MS, () => {
      this.#gate.restarted();
      try {
        this.#cryptoki?.finalize();
      } catch {
        // It had not begun.
      }
    });
  }

  #explain(error: CryptokiError): RonError {
    if (error.result === CKR.TOKEN_NOT_PRESENT) {
      return awayError(`no token with the label ${this.#config.token} is present`);
    }
    if (LOST.has(error.result)) return awayError(`the token does not answer as it should (${error.message})`);
    if (error.result === CKR.DEVICE_MEMORY) return new RonError('storage_full', 'the token holds no more keys');
    return new RonError('validation', `the token refuses this (${error.message})`);
  }

  #find(cryptoki: Cryptoki, session: Handle, name: string): KeyObject {
    const known = this.#objects.get(name);
    if (known !== undefined) return known;
    const alg = algOfName(name);
    const handle = findKey(cryptoki, session, name);
    if (handle === undefined) throw noSuchKey();
    const type = cryptoki.attribute(session, handle, CKA.KEY_TYPE, 8);
    const kept = Number(type.readBigUInt64LE()) === CKK.RSA ? 'rsa' : 'hmac';
    const object: KeyObject = { alg, handle, kept };
    if (this.#objects.size >= HANDLES_MAX) this.#objects.clear();
    this.#objects.set(name, object);
    return object;
  }

  #destroyAll(cryptoki: Cryptoki, session: Handle, name: string): void {
    for (const handle of search(cryptoki, session, byName(name))) cryptoki.destroy(session, handle);
  }
}

function load(module: string): Cryptoki {
  try {
    return new Cryptoki(module);
  } catch (error) {
    if (error instanceof CryptokiError || error instanceof RonError) throw error;
    throw new RonError('unhealthy', `${module} is not a PKCS #11 module that can be loaded`, { cause: error });
  }
}

function labelOf(cryptoki: Cryptoki, slot: Handle): string | undefined {
  try {
    return cryptoki.tokenInfo(slot).label;
  } catch {
    // A slot whose token cannot be read now is not the one.
    return undefined;
  }
}
