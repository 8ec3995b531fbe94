/**
 * Audience keys that a key service derives: version N of its root key, for one audience, is the capability key `vNx<check>`.
 * The check is of the key itself: a key service that lost its root and made another gives keys of other names.
 *
 * Contract: what is known is answered without asking. The key service is asked when a key is needed for the first time, when
 * an unknown key id is met (at most once in `reask_ms`: strangers choose key ids), and regularly by `run`. A new version of
 * the root is the current key from then on; one below the root's least version stops being good, and `generation` moves
 * before its bytes are zeroed. While the key service is away, known keys go on; for others the call rejects `not_ready`.
 * What a cache holds from an earlier life counts as known.
 * Bound: `RING_KEYS_MAX` keys of an audience; one question for an audience at a time, `deadline_ms` for all its tries.
 * Cancellation: a caller's signal ends its wait, not the question, which others may share.
 */
import { hash } from 'node:crypto';
import { inspect } from 'node:util';
import { Deadline, isRonError, RonError, sched, sleep, touch } from '@ron/kernel';
import { SERVICES, type Service } from '@ron/proto';
import { AUDIENCE_LABEL } from './audience-names.ts';
import { KeyRing, RING_KEYS_MAX } from './key-ring.ts';
import type { AudienceKey, KeySet, RingKey } from './key-ring.ts';
import { wipeSet, type KeySource } from './key-source.ts';

export interface Derived {
  /** The version of the root that was used. */
  readonly version: number;
  /** Versions below it are no longer good. */
  readonly version_min: number;
  /** Belongs to the caller. */
  readonly secret: Uint8Array;
}

/** The holder of the root key. */
export interface KeyDeriver {
  /** `version` undefined: the current one. Rejects with `conflict` or `not_found` when that version is retired. */
  derive(label: string, version: number | undefined, signal: AbortSignal): Promise<Derived>;
}

/** Keeps the keys of an audience over restarts. */
export interface KeyCache {
  /** The caller owns the secrets. */
  load(audience: Service): KeySet | undefined;
  save(set: KeySet, signal: AbortSignal): Promise<void>;
}

export interface DerivedKeysInit {
  deriver: KeyDeriver;
  /** Default: nothing outlives the process. */
  cache?: KeyCache | undefined;
  /** How often an unknown key id may make us ask. Default 1000. */
  reask_ms?: number;
  /** For one question, all tries included. Default 2000. */
  deadline_ms?: number;
  /** Keys are good, but could not be kept. */
  onCacheProblem?: (error: unknown) => void;
}

export interface RunInit {
  /** Called after each time that kms was asked; what it rejects with counts as a failure of the question. */
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

/** What is known of one audience. */
interface Known {
  ring: KeyRing | undefined;
  asked_ms: number;
  asking: Promise<void> | undefined;
  /** Why the last question had no answer. */
  error: unknown;
  /** What the cache holds, as `stateOf` says. */
  kept: string | undefined;
  answered_ms: number | undefined;
  answered_total: number;
  failed_total: number;
}

/** How the questions for the keys of an audience went. */
export interface KeyRefreshes {
  readonly answered_total: number;
  readonly failed_total: number;
  /** Since the last answer; undefined when there was none since the start. */
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

  /** Why the key service could not be asked for the keys of an audience the last time; undefined when all is well. */
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

  /** Whether keys of the audience are known, from whenever. */
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

  /** Asks the key service now. */
  async refresh(audience: Service, signal: AbortSignal): Promise<void> {
    const known = this.#of(audience);
    if (this.#closed) throw closedError();
    if (known.asking === undefined) {
      known.asked_ms = sched.now_ms();
      known.asking = this.#ask(audience, known);
      // The waiters get the error; without one it must not be unhandled.
      known.asking.catch(() => undefined);
    }
    using wait = Deadline.after('derive', this.#deadline_ms, { signal });
    await wait.run(() => known.asking ?? Promise.resolve());
  }

  /** Keeps the keys of an audience, and of others that were asked for, fresh until the signal aborts. */
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
    const isSoon = sched.now_ms() - known.asked_ms < (this.#init.reask_ms ?? 1000);
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

  /** All versions that are good, the current one first. The first question also tells which those are. */
  async #derive(audience: Service, ring: KeyRing | undefined, signal: AbortSignal): Promise<KeySet> {
    const { deriver } = this.#init;
    const guess = versionOf(ring?.keyIds[0]) ?? 1;
    const first = await deriver.derive(audienceLabel(audience, guess), undefined, signal);
    const isGuessed = first.version === guess;
    // The same secret: it is the same root, and what we know of its older versions holds. Else everything is asked anew.
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
      wipeSet({ audience, keys });
      throw error;
    }
    return { audience, keys };
  }

  async #older(audience: Service, version: number, signal: AbortSignal): Promise<Uint8Array | undefined> {
    try {
      return (await this.#init.deriver.derive(audienceLabel(audience, version), version, signal)).secret;
    } catch (error) {
      // It was retired or deleted by itself; the others are good.
      if (isRonError(error, 'conflict') || isRonError(error, 'not_found')) return undefined;
      throw error;
    }
  }

  #adopt(known: Known, set: KeySet): void {
    touch(this);
    if (this.#closed) {
      wipeSet(set);
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
      wipeSet(copy);
    }
  }

  #away(cause: unknown): RonError {
    const init = { op: 'derive', retry_after_ms: RETRY_AFTER_MS };
    return new RonError('not_ready', 'kms cannot be asked for the keys of capabilities now', { ...init, cause });
  }
}

/** The name of a derived key in capabilities. It reveals nothing useful about a key of 256 bits. */
export function keyIdOf(version: number, secret: Uint8Array): string {
  const bytes = Buffer.concat([Buffer.from('ron/auth/v1/key-id\n'), secret]);
  const check = hash('sha256', bytes, 'hex').slice(0, CHECK_CHARS);
  bytes.fill(0);
  return `v${version}x${check}`;
}

/** Differs when the keys do. */
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
