/**
 * Audience keys that a key service derives: version N of its root key, for one audience, is the capability key
 * `vNx<check>`. The check is a digest of the key itself: a key service that lost its root and created another yields
 * keys with other names.
 *
 * Contract: known keys are returned without a request. The key service is queried when a key is needed for the first
 * time, when an unknown key id is met (at most once in `requery_ms`, because clients choose key ids), and regularly by
 * `run`. A new version of the root is the current key from then on. A version below the root's minimum version becomes
 * invalid, and `generation` changes before its bytes are zeroed. While the key service is down, known keys remain valid;
 * for others the call rejects with `not_ready`. Keys that the cache holds from an earlier run count as known.
 * Bound: `RING_KEYS_MAX` keys per audience; one query per audience at a time, `deadline_ms` for all its attempts.
 * Cancellation: the signal of a caller ends its wait, not the query, which other callers may share.
 */
import { hash } from 'node:crypto';
import { inspect } from 'node:util';
import { Deadline, isRonError, RonError, sched, sleep, touch } from '@ron/kernel';
import { SERVICES, type Service } from '@ron/proto';
import { AUDIENCE_LABEL } from './audience-names.ts';
import { KeyRing, RING_KEYS_MAX } from './key-ring.ts';
import type { AudienceKey, KeySet, RingKey } from './key-ring.ts';
import { zeroKeySet, type KeySource } from './key-source.ts';

export interface Derived {
  /** The version of the root that was used. */
  readonly version: number;
  /** Versions below it are invalid. */
  readonly version_min: number;
  /** Belongs to the caller. */
  readonly secret: Uint8Array;
}

/** The holder of the root key. */
export interface KeyDeriver {
  /** `version` undefined: the current one. Rejects with `conflict` or `not_found` if that version is retired. */
  derive(label: string, version: number | undefined, signal: AbortSignal): Promise<Derived>;
}

/** Stores the keys of an audience across restarts. */
export interface KeyCache {
  /** The caller owns the secrets. */
  load(audience: Service): KeySet | undefined;
  save(set: KeySet, signal: AbortSignal): Promise<void>;
}

export interface DerivedKeysInit {
  deriver: KeyDeriver;
  /** Default: keys do not outlive the process. */
  cache?: KeyCache | undefined;
  /** Minimum time between queries for unknown key ids. Default 1000. */
  requery_ms?: number;
  /** For one query, including all attempts. Default 2000. */
  deadline_ms?: number;
  /** The keys are valid, but could not be stored. */
  onCacheProblem?: (error: unknown) => void;
}

export interface RunInit {
  /** Called after each query of kms; a rejection counts as a failure of the query. */
  onRefreshed?: (() => Promise<void>) | undefined;
}

const KEY_ID = /^v([1-9][0-9]{0,5})x[0-9a-f]{8}$/;
const CHECK_CHARS = 8;
const RETRY_AFTER_MS = 1000;
const BACKOFF_MS_MIN = 100;
const BACKOFF_MS_MAX = 5000;

export function audienceLabel(audience: Service, version: number): string {
  return `${AUDIENCE_LABEL}${audience}/v${version}`;
}

/** The known keys of one audience. */
interface Known {
  ring: KeyRing | undefined;
  asked_ms: number;
  asking: Promise<void> | undefined;
  /** The reason why the last query failed. */
  error: unknown;
  /** The stored state, as returned by `stateOf`. */
  kept: string | undefined;
  answered_ms: number | undefined;
  answered_total: number;
  failed_total: number;
}

/** Results of the queries for the keys of an audience. */
export interface KeyRefreshes {
  readonly answered_total: number;
  readonly failed_total: number;
  /** Time since the last answer; undefined if there was none since the start. */
  readonly age_ms: number | undefined;
}

export class DerivedKeySource implements KeySource {
  readonly #init: DerivedKeysInit;
  readonly #known: ReadonlyMap<Service, Known>;
  #closed = false;

  constructor(init: DerivedKeysInit) {
    this.#init = init;
    const known = (audience: Service): Known => {
      const kept = init.cache?.load(audience);
      const ring = kept === undefined ? undefined : new KeyRing(kept);
      const asked = { asked_ms: -Infinity, asking: undefined, error: undefined };
      const answers = { answered_ms: undefined, answered_total: 0, failed_total: 0 };
      return { ring, ...asked, kept: ring && stateOf(ring), ...answers };
    };
    this.#known = new Map(SERVICES.map((audience) => [audience, known(audience)]));
  }

  get generation(): number {
    touch(this);
    let sum = 0;
    for (const { ring } of this.#known.values()) sum += ring?.generation ?? 0;
    return sum;
  }

  /** The reason why the last query for the keys of an audience failed; undefined if it succeeded. */
  problem(audience: Service): string | undefined {
    const { error } = this.#of(audience);
    if (error === undefined) return undefined;
    return error instanceof Error ? error.message : 'unknown';
  }

  refreshes(audience: Service): KeyRefreshes {
    const { answered_ms, answered_total, failed_total } = this.#of(audience);
    const age_ms = answered_ms === undefined ? undefined : sched.now_ms() - answered_ms;
    return { answered_total, failed_total, age_ms };
  }

  /** Whether keys of the audience are known, however old. */
  has(audience: Service): boolean {
    return this.#of(audience).ring !== undefined;
  }

  async key(audience: Service, key_id: string, signal: AbortSignal): Promise<Uint8Array | undefined> {
    signal.throwIfAborted();
    const known = this.#of(audience);
    const found = known.ring?.key(audience, key_id);
    if (found !== undefined || this.#closed || !KEY_ID.test(key_id)) return found;
    await this.#askAgain(audience, known, signal);
    return known.ring?.key(audience, key_id);
  }

  async current(audience: Service, signal: AbortSignal): Promise<AudienceKey> {
    signal.throwIfAborted();
    if (this.#closed) throw closedError();
    const known = this.#of(audience);
    if (known.ring === undefined) await this.#askAgain(audience, known, signal);
    if (known.ring === undefined) throw this.#away(known.error);
    return known.ring.current(audience);
  }

  /** Queries the key service now. */
  async refresh(audience: Service, signal: AbortSignal): Promise<void> {
    const known = this.#of(audience);
    if (this.#closed) throw closedError();
    if (known.asking === undefined) {
      known.asked_ms = sched.now_ms();
      known.asking = this.#ask(audience, known);
      // The waiters receive the error; without a waiter it must not be unhandled.
      known.asking.catch(() => undefined);
    }
    using wait = Deadline.after('derive', this.#deadline_ms, { signal });
    await wait.run(() => known.asking ?? Promise.resolve());
  }

  /** Refreshes the keys of an audience, and of others that were requested, until the signal aborts. */
  async run(audience: Service, refresh_ms: () => number, stopping: AbortSignal, init: RunInit = {}): Promise<void> {
    let failures = 0;
    while (!this.#closed) {
      const isFine = await this.#refreshAll(audience, stopping, init).then(
        () => true,
        () => false,
      );
      failures = isFine ? 0 : failures + 1;
      const backoff_ms = Math.min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2 ** Math.min(failures, 10));
      await sleep((isFine ? refresh_ms() : backoff_ms) * (0.8 + sched.random() * 0.4), stopping, 'derived_keys');
    }
  }

  async #refreshAll(audience: Service, signal: AbortSignal, { onRefreshed }: RunInit): Promise<void> {
    await this.refresh(audience, signal);
    await onRefreshed?.();
    for (const other of SERVICES) if (other !== audience && this.has(other)) await this.refresh(other, signal);
  }

  close(): Promise<void> {
    this.#closed = true;
    for (const { ring } of this.#known.values()) ring?.wipe();
    return Promise.resolve();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  toJSON(): string {
    const rings = [...this.#known.values()].flatMap(({ ring }) => (ring === undefined ? [] : [ring.toJSON()]));
    return `DerivedKeySource(${rings.join(', ')})`;
  }

  [inspect.custom](): string {
    return this.toJSON();
  }

  get #deadline_ms(): number {
    return this.#init.deadline_ms ?? 2000;
  }

  #of(audience: Service): Known {
    touch(this);
    return this.#known.get(audience)!;
  }

  async #askAgain(audience: Service, known: Known, signal: AbortSignal): Promise<void> {
    const isSoon = sched.now_ms() - known.asked_ms < (this.#init.requery_ms ?? 1000);
    if (isSoon && known.asking === undefined) {
      if (known.error !== undefined) throw this.#away(known.error);
      return;
    }
    try {
      await this.refresh(audience, signal);
    } catch (error) {
      signal.throwIfAborted();
      throw isRonError(error, 'closed') ? error : this.#away(error);
    }
  }

  async #ask(audience: Service, known: Known): Promise<void> {
    try {
      using deadline = Deadline.after('derive', this.#deadline_ms);
      const set = await deadline.run((signal) => this.#derive(audience, known.ring, signal));
      this.#adopt(known, set);
      known.error = undefined;
      known.answered_total += 1;
      known.answered_ms = sched.now_ms();
      await this.#keep(known, audience);
    } catch (error) {
      known.error = error;
      known.failed_total += 1;
      throw error;
    } finally {
      touch(this);
      known.asking = undefined;
    }
  }

  /** All valid versions, the current one first. The first query also returns the minimum version. */
  async #derive(audience: Service, ring: KeyRing | undefined, signal: AbortSignal): Promise<KeySet> {
    const { deriver } = this.#init;
    const guess = versionOf(ring?.keyIds[0]) ?? 1;
    const first = await deriver.derive(audienceLabel(audience, guess), undefined, signal);
    const isGuessed = first.version === guess;
    // The same secret means the same root, so its known older versions remain valid. Otherwise all versions are queried again.
    const current = { key_id: keyIdOf(guess, first.secret), secret: first.secret };
    const sameRoot = isGuessed && ring?.holds(audience, current.key_id, first.secret) === true ? ring : undefined;
    const keys: RingKey[] = isGuessed ? [current] : [];
    if (!isGuessed) first.secret.fill(0);
    const least = Math.max(first.version_min, first.version - RING_KEYS_MAX + 1);
    try {
      for (let version = first.version - keys.length; version >= least; version--) {
        const known = sameRoot?.keyIds.find((key_id) => versionOf(key_id) === version);
        const copy = known === undefined ? undefined : sameRoot?.copy(audience, known);
        const secret = copy ?? (await this.#older(audience, version, signal));
        if (secret !== undefined) keys.push({ key_id: keyIdOf(version, secret), secret });
      }
    } catch (error) {
      zeroKeySet({ audience, keys });
      throw error;
    }
    return { audience, keys };
  }

  async #older(audience: Service, version: number, signal: AbortSignal): Promise<Uint8Array | undefined> {
    try {
      return (await this.#init.deriver.derive(audienceLabel(audience, version), version, signal)).secret;
    } catch (error) {
      // This version alone was retired or deleted; the others remain valid.
      if (isRonError(error, 'conflict') || isRonError(error, 'not_found')) return undefined;
      throw error;
    }
  }

  #adopt(known: Known, set: KeySet): void {
    touch(this);
    if (this.#closed) {
      zeroKeySet(set);
      throw closedError();
    }
    if (known.ring === undefined) known.ring = new KeyRing(set);
    else known.ring.adopt(set);
  }

  async #keep(known: Known, audience: Service): Promise<void> {
    const { cache, onCacheProblem } = this.#init;
    const ring = known.ring!;
    const state = stateOf(ring);
    if (cache === undefined || known.kept === state) return;
    const copy = ring.audienceSet(audience);
    using deadline = Deadline.after('key_cache', this.#deadline_ms);
    try {
      await deadline.run((signal) => cache.save(copy, signal));
      known.kept = state;
    } catch (error) {
      onCacheProblem?.(error);
    } finally {
      zeroKeySet(copy);
    }
  }

  #away(cause: unknown): RonError {
    const init = { op: 'derive', retry_after_ms: RETRY_AFTER_MS };
    return new RonError('not_ready', 'kms does not provide the capability keys now', { ...init, cause });
  }
}

/** The id of a derived key in capabilities. It reveals nothing useful about a key of 256 bits. */
export function keyIdOf(version: number, secret: Uint8Array): string {
  const bytes = Buffer.concat([Buffer.from('ron/auth/v1/key-id\n'), secret]);
  const check = hash('sha256', bytes, 'hex').slice(0, CHECK_CHARS);
  bytes.fill(0);
  return `v${version}x${check}`;
}

/** Changes whenever the keys change. */
function stateOf(ring: KeyRing): string {
  return `${ring.generation} ${ring.keyIds.join(' ')}`;
}

function versionOf(key_id: string | undefined): number | undefined {
  const digits = KEY_ID.exec(key_id ?? '')?.[1];
  return digits === undefined ? undefined : Number(digits);
}

function closedError(): RonError {
  return new RonError('closed', 'the key source is closed');
}
