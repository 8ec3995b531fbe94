/**
 * Audience keys that a key service derives: version N of its root key, for one audience, is the capability key
 * `vNx<check>`. The check is a digest of the key itself: a key service that lost its root and created another yields
 * keys with other names.
 *
 * Contract: known keys are returned without a request. Keys are derived when one is needed for the first time, when an
 * unknown key id is met (at most once in `requery_ms`, because clients choose key ids), and when `run`, which polls the
 * state of the root, finds that it changed. A new version of the root is the current key from then on. A version below the
 * root's minimum version becomes invalid, and `generation` changes before its bytes are zeroed. While the key service is
 * down, known keys remain valid; for others the call rejects with `not_ready`. Keys that the cache holds from an earlier
 * run count as known.
 * Bound: `RING_KEYS_MAX` keys per audience; one query per audience at a time, `deadline_ms` for all its attempts.
 * Cancellation: the signal of a caller ends its wait, not the query, which other callers may share.
 */
import { hash } from 'node:crypto';
import { inspect } from 'node:util';
import { Deadline, isRonError, RonError, sched, sleep, touch } from '@ron/kernel';
import { SERVICES, type Service } from '@ron/proto';
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

/** Changes whenever the keys change. */
export interface RootState {
  readonly version: number;
  /** Versions below it are invalid. */
  readonly version_min: number;
  /** Identifies the root: another one has other keys under the same versions. */
  readonly root_id: string;
}

/** The holder of the root key. */
export interface KeyDeriver {
  /** Cheap, needs no capability, and leaves no entry in the audit log. */
  state(signal: AbortSignal): Promise<RootState>;
  /** `version` undefined: the current one. Rejects with `conflict` or `not_found` if that version is retired. */
  derive(audience: Service, version: number | undefined, signal: AbortSignal): Promise<Derived>;
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
  /** Called when keys changed, and once a minute; a rejection counts as a failed poll. */
  onRefreshed?: (() => Promise<void>) | undefined;
}

const KEY_ID = /^v([1-9][0-9]{0,5})x[0-9a-f]{8}$/;
const CHECK_CHARS = 8;
const RETRY_AFTER_MS = 1000;
const BACKOFF_MS_MIN = 100;
/** A root that is retired right after an outage is retired here within two seconds too. */
const BACKOFF_MS_MAX = 1000;
const ON_REFRESHED_MS = 60_000;

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
  /** The state of the root for which all known keys were derived. */
  #derived_for: string | undefined;
  /** The first valid version of the root, as of the last poll. */
  #version_min = 1;

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
    return hasKeys(this.#of(audience));
  }

  async key(audience: Service, key_id: string, signal: AbortSignal): Promise<Uint8Array | undefined> {
    signal.throwIfAborted();
    const known = this.#of(audience);
    const found = known.ring?.key(audience, key_id);
    if (found !== undefined || this.#closed || !KEY_ID.test(key_id)) return found;
    if (versionOf(key_id)! < this.#version_min) return undefined;
    await this.#askAgain(audience, known, signal);
    return known.ring?.key(audience, key_id);
  }

  async current(audience: Service, signal: AbortSignal): Promise<AudienceKey> {
    signal.throwIfAborted();
    if (this.#closed) throw closedError();
    const known = this.#of(audience);
    if (!hasKeys(known)) await this.#askAgain(audience, known, signal);
    if (!hasKeys(known)) throw this.#away(known.error);
    return known.ring!.current(audience);
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

  /** Polls the state of the root, and derives the keys of an audience, and of others that were requested, when it changed. */
  async run(audience: Service, poll_ms: () => number, stopping: AbortSignal, init: RunInit = {}): Promise<void> {
    let failures = 0;
    let refreshed_ms = -Infinity;
    while (!this.#closed) {
      try {
        const isNew = await this.refreshIfChanged(audience, stopping);
        if (isNew || sched.now_ms() - refreshed_ms >= ON_REFRESHED_MS) {
          await init.onRefreshed?.();
          refreshed_ms = sched.now_ms();
        }
        failures = 0;
      } catch {
        // `problem` and the metrics report it.
        failures += 1;
      }
      const backoff_ms = Math.min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2 ** Math.min(failures, 10));
      await sleep((failures === 0 ? poll_ms() : backoff_ms) * (0.8 + sched.random() * 0.4), stopping, 'derived_keys');
    }
  }

  /** Polls the state of the root. Returns whether it changed; then its keys were derived. */
  async refreshIfChanged(audience: Service, stopping: AbortSignal): Promise<boolean> {
    const known = this.#of(audience);
    using deadline = Deadline.after('derive', this.#deadline_ms, { signal: stopping });
    const state = await deadline
      .run((signal) => this.#init.deriver.state(signal))
      .catch((error: unknown) => {
        if (!stopping.aborted) failed(known, error);
        throw error;
      });
    const { version, version_min, root_id } = state;
    const name = `${version} ${version_min} ${root_id}`;
    if (name === this.#derived_for) {
      answered(known);
      return false;
    }
    this.#version_min = version_min;
    // At once, because deriving needs a capability, which may have been retired together with the root.
    for (const { ring } of this.#known.values()) ring?.retire((key_id) => versionOf(key_id)! < version_min);
    await this.refresh(audience, stopping);
    for (const other of SERVICES) if (other !== audience && this.has(other)) await this.refresh(other, stopping);
    // If the root changed meanwhile, the next poll finds another state.
    this.#derived_for = name;
    return true;
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
      answered(known);
      await this.#keep(known, audience);
    } catch (error) {
      failed(known, error);
      throw error;
    } finally {
      touch(this);
      known.asking = undefined;
    }
  }

  /** All valid versions, the current one first. The first query also returns the minimum version. */
  async #derive(audience: Service, ring: KeyRing | undefined, signal: AbortSignal): Promise<KeySet> {
    const first = await this.#init.deriver.derive(audience, undefined, signal);
    // The same secret means the same root, so its known older versions remain valid. Otherwise all versions are queried again.
    const current = { key_id: keyIdOf(first.version, first.secret), secret: first.secret };
    const sameRoot = ring?.holds(audience, current.key_id, first.secret) === true ? ring : undefined;
    const keys: RingKey[] = [current];
    const least = Math.max(first.version_min, first.version - RING_KEYS_MAX + 1);
    try {
      for (let version = first.version - 1; version >= least; version--) {
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
      return (await this.#init.deriver.derive(audience, version, signal)).secret;
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

function hasKeys({ ring }: Known): boolean {
  return ring !== undefined && ring.keyIds.length > 0;
}

function answered(known: Known): void {
  known.error = undefined;
  known.answered_total += 1;
  known.answered_ms = sched.now_ms();
}

function failed(known: Known, error: unknown): void {
  known.error = error;
  known.failed_total += 1;
}

function closedError(): RonError {
  return new RonError('closed', 'the key source is closed');
}
