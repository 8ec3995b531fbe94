/**
 * The cached answers, and the task that owns them.
 *
 * Contract: `get` returns an answer only while it is fresh and no later change of its data was acknowledged. Resolvers offer
 * answers through `cache_in`; only the janitor inserts them [index I-2]. Pinned answers are kept apart: eviction does not
 * reach them, and one that cannot be refreshed is served until its name expires.
 * Bound: `entries_max` and `BYTES_MAX`, plus `PINS_MAX` pinned answers. Overflow: the least used answers are evicted; a full
 * `cache_in` drops its oldest offer. The janitor yields to the event loop after each millisecond of work.
 * Cancellation: the signal of the task.
 */
import { Cache } from '@ron/cache';
import { RonError, sched, sleep, type Cell, type Mpsc } from '@ron/kernel';
import { PINS_MAX } from '../../publish/names.ts';
import type { CachedAnswer } from './cached-answer.ts';
import type { Versions } from './versions.ts';

const BYTES_MAX = 256 * 1024 * 1024;
const ENTRY_BYTES_MAX = 64 * 1024;
const TURN_MS = 1;
const BATCH = 64;
const TICK_MS = 250;
const SWEEP_STEPS = 256;
/** The share of its life after which a pinned answer is refreshed. */
const REFRESH_SHARE = 0.7;
/** The pause after a refresh that brought no answer. */
const RETRY_MS = 2000;
/** The least share of their time for which refusals and incomplete answers are kept. */
const JITTER_MIN = 0.5;

/** The part of a `Cache` that is used here. */
type Answers = Pick<
  Cache<CachedAnswer>,
  | 'get'
  | 'delete'
  | 'clear'
  | 'size'
  | 'sweep'
  | 'hits_total'
  | 'misses_total'
  | 'evictions_total'
  | 'expirations_total'
> & { set(key: string, answer: CachedAnswer, bytes: number, lifetime: { ttl_ms: number }): unknown };

/** The state below the lock `cache_meta`. */
export interface CacheMeta {
  readonly answers: Answers;
  readonly pinned: Map<string, Pinned>;
}

interface Pinned {
  /** The last answer; undefined until the first one, and after a change. */
  readonly answer: CachedAnswer | undefined;
  /** When the next lookup begins. */
  readonly refresh_ms: number;
  /** When the record of its name expires, by the wall clock. */
  readonly not_after_ms: number;
}

const UNANSWERED: Pinned = { answer: undefined, refresh_ms: -Infinity, not_after_ms: Infinity };

export interface Offer {
  readonly key: string;
  readonly answer: CachedAnswer;
}

export interface AnswerCacheInit {
  readonly meta: Cell<CacheMeta>;
  readonly offers: Mpsc<Offer>;
  readonly versions: Versions;
  /** Starts a lookup that replaces the answer of a pinned target. Must not throw. */
  readonly refresh: (key: string) => void;
}

export function newCacheMeta(entries_max: number): CacheMeta {
  return {
    answers: new Cache({ entries_max, bytes_max: BYTES_MAX, entry_bytes_max: ENTRY_BYTES_MAX }),
    pinned: new Map(),
  };
}

export class AnswerCache {
  readonly #init: AnswerCacheInit;
  /** The sweep of a purge continues from here. */
  #purge_steps = 0;

  constructor(init: AnswerCacheInit) {
    this.#init = init;
  }

  get(key: string): CachedAnswer | undefined {
    return this.#init.meta.withSync((meta) => read(meta, key));
  }

  /** Hands an answer to the janitor. Never waits. */
  offer(offer: Offer): void {
    this.#init.offers.pushDropOldest(offer);
  }

  /**
   * Outdates the answers and the running lookups of these targets. Call it after a change is committed and before it is
   * acknowledged.
   */
  invalidate(targets: Iterable<string>): void {
    const { meta, versions } = this.#init;
    meta.withSync(({ answers, pinned }) => {
      for (const target of targets) {
        versions.bump(target);
        answers.delete(target);
        if (pinned.has(target)) pinned.set(target, UNANSWERED);
      }
    });
  }

  /** Outdates everything. */
  clear(): void {
    const { meta, versions } = this.#init;
    meta.withSync(({ answers, pinned }) => {
      versions.bumpAll();
      answers.clear();
      for (const target of pinned.keys()) pinned.set(target, UNANSWERED);
    });
  }

  /** Throws `storage_full` beyond `PINS_MAX`. Idempotent. */
  pin(target: string): void {
    this.#init.meta.withSync(({ pinned }) => {
      if (pinned.has(target)) return;
      if (pinned.size >= PINS_MAX) throw new RonError('storage_full', `at most ${PINS_MAX} keys can be pinned`);
      pinned.set(target, UNANSWERED);
    });
  }

  unpin(target: string): void {
    this.#init.meta.withSync(({ pinned }) => pinned.delete(target));
  }

  get size(): number {
    return this.#init.meta.withSync(({ answers, pinned }) => answers.size + pinned.size);
  }

  /** Hits and misses of readers, and evictions, since the start. */
  totals(): { hits: number; misses: number; evictions: number; expirations: number } {
    return this.#init.meta.withSync(({ answers }) => ({
      hits: answers.hits_total,
      misses: answers.misses_total,
      evictions: answers.evictions_total,
      expirations: answers.expirations_total,
    }));
  }

  /** Removes expired answers with the next ticks, instead of when they are met. */
  purge(): void {
    this.#purge_steps = this.size * 2;
  }

  /** The task `cache_janitor`. */
  async run(stopping: AbortSignal): Promise<void> {
    const ends = new AbortController();
    const signal = AbortSignal.any([stopping, ends.signal]);
    const fill = this.fill(signal);
    try {
      await Promise.race([fill, this.#tickForever(signal)]);
    } finally {
      ends.abort(new RonError('canceled', 'the janitor has ended'));
      await fill.catch(() => undefined);
    }
  }

  /** The part of the janitor that inserts offers. Ends when the channel is closed. */
  async fill(signal: AbortSignal): Promise<void> {
    const batch: Offer[] = [];
    for (;;) {
      const offers = await this.#init.offers.recvMany(BATCH, signal, batch);
      if (offers.length === 0) return;
      let began_ms = sched.now_ms();
      for (const offer of offers) {
        this.insert(offer);
        if (sched.now_ms() - began_ms < TURN_MS) continue;
        await sched.pause('cache_janitor');
        began_ms = sched.now_ms();
      }
    }
  }

  /** For the janitor. An answer that was outdated on its way is dropped. */
  insert({ key, answer }: Offer): void {
    this.#init.meta.withSync(({ answers, pinned }) => {
      if (!answer.stamp.isCurrent) return;
      const held = pinned.get(key);
      if (held !== undefined) pinned.set(key, replaced(held, answer));
      else answers.set(key, answer, answer.bytes, { ttl_ms: answer.ttl_ms * jitterOf(answer) });
    });
  }

  async #tickForever(signal: AbortSignal): Promise<void> {
    for (;;) {
      await sleep(TICK_MS, signal, 'cache_janitor');
      await this.#sweep();
      await this.#refreshPinned();
    }
  }

  async #sweep(): Promise<void> {
    do {
      this.#init.meta.withSync(({ answers }) => answers.sweep(SWEEP_STEPS));
      this.#purge_steps = Math.max(0, this.#purge_steps - SWEEP_STEPS);
      if (this.#purge_steps > 0) await sched.pause('cache_janitor');
    } while (this.#purge_steps > 0);
  }

  /** Refreshes pinned answers before they expire, and those that have none. */
  async #refreshPinned(): Promise<void> {
    const now_ms = sched.now_ms();
    const due = this.#init.meta.withSync(({ pinned }) => {
      const late = [...pinned].filter(([, held]) => now_ms >= held.refresh_ms);
      // A lookup that fails is repeated after a while.
      for (const [target, held] of late) pinned.set(target, { ...held, refresh_ms: now_ms + RETRY_MS });
      return late.map(([target]) => target);
    });
    let began_ms = now_ms;
    for (const target of due) {
      this.#init.refresh(target);
      if (sched.now_ms() - began_ms < TURN_MS) continue;
      await sched.pause('cache_janitor');
      began_ms = sched.now_ms();
    }
  }
}

function read({ answers, pinned }: CacheMeta, key: string): CachedAnswer | undefined {
  const found = answers.get(key) ?? pinnedIn(pinned, key);
  return found?.stamp.isCurrent === true ? found : undefined;
}

function pinnedIn(pinned: CacheMeta['pinned'], key: string): CachedAnswer | undefined {
  const held = pinned.get(key);
  return held?.answer !== undefined && sched.wall_ms() < held.not_after_ms ? held.answer : undefined;
}

/** Spreads the next lookups of keys that were missed together. */
function jitterOf({ resolution }: CachedAnswer): number {
  return resolution?.complete === true ? 1 : JITTER_MIN + (1 - JITTER_MIN) * sched.random();
}

/** A definite refusal leaves nothing to serve. An incomplete answer does not replace a complete one that is still valid. */
function replaced(held: Pinned, answer: CachedAnswer): Pinned {
  const { resolution, ttl_ms } = answer;
  const refresh_ms = sched.now_ms() + ttl_ms * REFRESH_SHARE;
  if (resolution === undefined) return { answer, refresh_ms, not_after_ms: sched.wall_ms() + ttl_ms };
  const isBetter = held.answer?.resolution?.complete === true && held.answer.stamp.isCurrent;
  if (!resolution.complete && isBetter) return { ...held, refresh_ms };
  return { answer, refresh_ms, not_after_ms: resolution.not_after_ms };
}
