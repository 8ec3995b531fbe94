/**
 * One session with one token, in a dedicated thread. It is kept across calls and reopened when it dies.
 *
 * Contract: a call that fails because the session, the login or a handle is invalid is retried in a new session. If that
 * fails too, and no other thread's calls succeed, it is retried once more after a restart of the module; then the token is
 * unavailable (`not_ready`). The module is started and finalized only while no thread is in it (module-lock.ts).
 * A PIN that the token refused is never sent again by this process, because the token would lock itself. Keys are created
 * such that the token never exports them; a key that could be exported is destroyed immediately.
 * Bound: one session; `HANDLES_MAX` cached object handles. Cancellation: calls block.
 */
import { createHash, createHmac } from 'node:crypto';
import { RonError } from '@ron/kernel';
import type { Alg } from '../algorithms/algorithms.ts';
import { algOfName, unavailable, noSuchKey, requireUse } from '../backend/backend.ts';
import { CKA, CKK, CKM, CKO, CKR, CKU_USER, nameOfResult } from './constants.ts';
import { Cryptoki, CryptokiError, type Handle, type TokenInfo } from './cryptoki.ts';
import { ModuleLock } from './module-lock.ts';
import {
  algsOf,
  byName,
  findKey,
  generateEdwards,
  generateSecret,
  HMAC_BYTES,
  isTrue,
  keptAs,
  LOST,
  requireLogin,
  RSA_BITS,
  search,
  type Kept,
} from './objects.ts';

export interface TokenConfig {
  /** The shared library. */
  readonly module: string;
  /** The label of the token. */
  readonly token: string;
  readonly pin: string;
  /** The lock of the module, shared by all threads of this process: `lockOf`. */
  readonly lock: SharedArrayBuffer;
  /** One word: the outcome of the last call of any thread. */
  readonly outcome: Int32Array<SharedArrayBuffer>;
}

export const OUTCOME = { answered: 0, unavailable: 1 } as const;

/** Errors about the token rather than the request. */
const UNAVAILABLE_CODES: readonly string[] = ['not_ready', 'timeout', 'internal', 'unhealthy'];

export const isUnavailable = (error: RonError): boolean => UNAVAILABLE_CODES.includes(error.code);

/** Sent with every call. The generation changes when a key is destroyed, because a token may reuse its handle. */
export interface TokenCall {
  readonly config: TokenConfig;
  readonly generation: number;
}

export interface TokenFacts {
  readonly info: TokenInfo;
  readonly algs: readonly Alg[];
  /** How it stores secrets; undefined if it cannot. */
  readonly kept: Kept | undefined;
}

interface KeyObject {
  readonly alg: Alg;
  readonly handle: Handle;
  readonly kept: Kept;
}

const HANDLES_MAX = 4096;
const TRIES_MAX = 3;
/** How long to wait until no other thread is in the module, to start it or to finalize it. */
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
  readonly #lock: ModuleLock;
  /** Restarts of the module when the session was opened. */
  #restarts = 0;
  #cryptoki: Cryptoki | undefined;
  #session: Handle | undefined;
  #slot: Handle | undefined;
  #pinRefused: RonError | undefined;
  readonly #objects = new Map<string, KeyObject>();
  #generation = 0;

  constructor(config: TokenConfig) {
    this.#config = config;
    this.#lock = new ModuleLock(config.lock);
  }

  /** Drops cached handles of an older generation. */
  useGeneration(generation: number): void {
    if (generation !== this.#generation) this.#objects.clear();
    this.#generation = generation;
  }

  facts(): TokenFacts {
    return this.#run((cryptoki) => {
      const slot = this.#slot as Handle;
      const mechanisms = cryptoki.mechanisms(slot);
      return { info: cryptoki.tokenInfo(slot), algs: algsOf(mechanisms), kept: keptAs(mechanisms) };
    });
  }

  ping(): void {
    this.#run(requireLogin);
  }

  /** Creates a key with this name. */
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
      throw new RonError('validation', `the token creates exportable keys of ${alg}, which are not used`);
    });
  }

  /** Returns the public key in DER; empty for a secret key. Throws `not_found`. */
  publicKey(name: string): Uint8Array {
    return this.#run((cryptoki, session) => {
      const { alg } = this.#find(cryptoki, session, name);
      if (alg !== 'ed25519') return new Uint8Array(0);
      const [handle] = search(cryptoki, session, [...byName(name), [CKA.CLASS, CKO.PUBLIC_KEY]]);
      if (handle === undefined) throw noSuchKey();
      const point = cryptoki.attribute(session, handle, CKA.EC_POINT, 64);
      // The standard says OCTET STRING; some modules return the bare point.
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
   * Closes every session of this process with the token, including those of exited threads. Waits until no other thread is in
   * a call, because that call would lose its session.
   */
  close(): void {
    const slot = this.#slot;
    if (slot !== undefined) this.#lock.runExclusive(END_WAIT_MS, () => this.#cryptoki?.closeAllSessions(slot));
    this.#drop();
  }

  /** Runs the work and records the outcome. */
  #run<T>(work: (cryptoki: Cryptoki, session: Handle) => T): T {
    const { outcome } = this.#config;
    try {
      const done = this.#withRetries(work);
      Atomics.store(outcome, 0, OUTCOME.answered);
      return done;
    } catch (error) {
      Atomics.store(
        outcome,
        0,
        error instanceof RonError && !isUnavailable(error) ? OUTCOME.answered : OUTCOME.unavailable,
      );
      throw error;
    }
  }

  /** The work must be idempotent: `create` removes the objects of an earlier attempt. */
  #withRetries<T>(work: (cryptoki: Cryptoki, session: Handle) => T): T {
    const { worked, restarts } = this.#lock;
    for (let tries = 1; ; tries++) {
      try {
        return this.#attempt(work);
      } catch (error) {
        if (!(error instanceof CryptokiError)) throw error;
        if (!LOST.has(error.result) || tries === TRIES_MAX) throw this.#explain(error);
        const isHopeless = tries > 1 && this.#lock.worked === worked && this.#lock.restarts === restarts;
        if (isHopeless && !this.#restartModule()) throw this.#explain(error);
      }
    }
  }

  #attempt<T>(work: (cryptoki: Cryptoki, session: Handle) => T): T {
    if (this.#pinRefused !== undefined) throw this.#pinRefused;
    const cryptoki = (this.#cryptoki ??= load(this.#config.module));
    if (this.#session === undefined) this.#start(cryptoki);
    return this.#lock.runShared(() => {
      if (this.#restarts !== this.#lock.restarts) this.#drop();
      try {
        return work(cryptoki, this.#open(cryptoki));
      } catch (error) {
        if (error instanceof CryptokiError && LOST.has(error.result)) this.#forget();
        throw error;
      }
    });
  }

  /** Two concurrent starts may break a module. If a thread stays in a call, the module has already been started. */
  #start(cryptoki: Cryptoki): void {
    this.#lock.runExclusive(START_WAIT_MS, () => cryptoki.initialize());
  }

  #open(cryptoki: Cryptoki): Handle {
    if (this.#session !== undefined) return this.#session;
    const { restarts } = this.#lock;
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
        const message = `the token refused the PIN (${nameOfResult(error.result)}); it will not be sent again`;
        this.#pinRefused = new RonError('unhealthy', message, { op: 'login' });
        throw this.#pinRefused;
      }
      throw error;
    }
  }

  /** Closes a session that is no longer valid. */
  #forget(): void {
    const session = this.#session;
    this.#drop();
    if (session === undefined) return;
    try {
      this.#cryptoki?.closeSession(session);
    } catch {
      // The session was already dead.
    }
  }

  /** Drops the session without closing it: another session may have its number by now. */
  #drop(): void {
    this.#session = undefined;
    this.#slot = undefined;
    this.#objects.clear();
  }

  /** Restarts the module, which is the only way to make some modules release stale state. Returns false if a call hangs. */
  #restartModule(): boolean {
    return this.#lock.runExclusive(END_WAIT_MS, () => {
      this.#lock.restarted();
      try {
        this.#cryptoki?.finalize();
      } catch {
        // The module was not initialised.
      }
    });
  }

  #explain(error: CryptokiError): RonError {
    if (error.result === CKR.TOKEN_NOT_PRESENT) {
      return unavailable(`no token with the label ${this.#config.token} is present`);
    }
    if (LOST.has(error.result)) return unavailable(`the token is unavailable (${error.message})`);
    if (error.result === CKR.DEVICE_MEMORY) return new RonError('storage_full', 'the token is full');
    return new RonError('validation', `the token refused the operation (${error.message})`);
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
    throw new RonError('unhealthy', `${module} cannot be loaded as a PKCS #11 module`, { cause: error });
  }
}

function labelOf(cryptoki: Cryptoki, slot: Handle): string | undefined {
  try {
    return cryptoki.tokenInfo(slot).label;
  } catch {
    // A slot whose token cannot be read is not a match.
    return undefined;
  }
}
