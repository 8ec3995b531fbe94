/**
 * Polls passport for revocations: one long poll at a time, which passport answers when a revocation was added, or after
 * a second without one.
 *
 * Contract: while passport answers, a revocation is in force here within two seconds after passport acknowledged it. A
 * received revocation is in force at once and stored for the next start.
 * Only answers that are authenticated for this service count (revocation-answer.ts). Any other answer changes nothing, is
 * counted and reported, and the next authentic one takes effect at once. Stored revocations are checked like received ones.
 * An authentic answer from a clock that differs by more than `CLOCK_SKEW_MS`, or with times from the future, is not applied.
 * It may hold revocations, so capabilities issued by passport are refused (`not_ready`) until an answer is right again; those
 * of the node itself are not affected. `problem` names the clocks.
 * Until the first answer after a start, capabilities issued by passport are refused (`not_ready`): they may have been
 * revoked while this service was down. Capabilities that the node issued to its owner and services are checked against
 * the stored revocations, so that a node can start at all: passport itself needs keys from kms.
 * While passport is down later on, capabilities are accepted by the last known revocations: only passport can revoke, so
 * no acknowledged revocation is missed. With `max_age_ms` they are refused after that time without an answer.
 * If passport returns an older version than before, it was restored from an earlier state: no revocation is dropped
 * here, and `problem` reports it until the version is as new again.
 * Bound: one poll of at most `POLL_MS`; a pause after a failure or an early answer.
 * Cancellation: the signal of `run`.
 */
import { JsonCalls } from '@ron/client/calls';
import { reachPrivately } from '@ron/client/node';
import { Deadline, isRonError, POLICIES, RonError, sched, sleep } from '@ron/kernel';
import type { Service } from '@ron/proto';
import type { KeySource } from '../keys/key-source.ts';
import { CLOCK_SKEW_MS, type RevocationEpochs } from '../revocations/epochs.ts';
import { newNonce, openAnswer, type OpenedAnswer } from '../revocations/revocation-answer.ts';
import { type RevocationDocument, requireCurrent, requireDocument, Revocations } from '../revocations/revocations.ts';
import { isNodeSubject } from '../capability/subjects.ts';

/** Longer than passport holds a poll; with the pause and the next poll still below two seconds. */
const POLL_MS = 1400;
export const HOLD_MS = 1000;
const PAUSE_MS = 200;
/** An answer without news that arrives sooner was not held by passport. */
const HASTY_MS = HOLD_MS / 2;
/** From here on `/readyz` reports it. */
const QUIET_MS = 5000;
const RETRY_AFTER_MS = 1000;

/** Polls for revocations newer than a version. Rejects with `integrity` if the answer is not authentic. */
export type AskRevocations = (after: number | undefined, signal: AbortSignal) => Promise<OpenedAnswer>;

export interface RevocationWatchInit {
  readonly ask: AskRevocations;
  /** The revocations of an earlier run. */
  readonly known?: RevocationDocument | undefined;
  readonly keep?: ((document: RevocationDocument, signal: AbortSignal) => Promise<void>) | undefined;
  /** Default: no limit. */
  readonly max_age_ms?: number | undefined;
  readonly onProblem: (error: unknown) => void;
}

export class RevocationWatch implements RevocationEpochs {
  readonly #init: RevocationWatchInit;
  readonly #revocations = new Revocations();
  #heard_ms: number;
  /** The version of the last answer of passport; undefined: no answer since the start. */
  #passport_version: number | undefined;
  /** Passport lost revocations: it returned `version` after `after`, with this floor of all. */
  #rollback: { readonly version: number; readonly after: number; readonly all: number } | undefined;
  /** Why the last authentic answer was not applied. */
  #clock_problem: string | undefined;
  /** Why the last answer was not authentic. */
  #forgery: string | undefined;
  #refused_total = 0;

  constructor(init: RevocationWatchInit) {
    this.#init = init;
    this.#heard_ms = sched.now_ms();
    if (init.known === undefined) return;
    try {
      const known = requireDocument(init.known);
      requireCurrent(known);
      this.#revocations.apply(known);
    } catch (error) {
      // The first answer of passport replaces it; until then its capabilities are refused anyway.
      init.onProblem(error);
    }
  }

  floor(subject: string): number {
    if (this.#passport_version === undefined && !isNodeSubject(subject)) {
      throw unknown('no answer from passport since the start: its capabilities may have been revoked');
    }
    if (this.#clock_problem !== undefined && !isNodeSubject(subject)) throw unknown(this.#clock_problem);
    const { max_age_ms } = this.#init;
    if (max_age_ms !== undefined && this.age_ms > max_age_ms) {
      throw unknown('no answer from passport for too long: revocations may be missing');
    }
    return this.#revocations.floor(subject);
  }

  isRevoked(capability_id: string): boolean {
    return this.#revocations.isRevoked(capability_id);
  }

  /** Time since the last answer of passport, or since the start. */
  get age_ms(): number {
    return sched.now_ms() - this.#heard_ms;
  }

  /** Subjects with a known revocation. */
  get size(): number {
    return this.#revocations.size;
  }

  /** Whether passport returned an older version than before, and has not revoked all since. */
  get isRolledBack(): boolean {
    return this.#rollback !== undefined;
  }

  /** Answers that were not applied. */
  get refused_total(): number {
    return this.#refused_total;
  }

  /** The reason why a revocation may be unknown; undefined if passport answered recently. */
  get problem(): string | undefined {
    const doubt = this.#clock_problem ?? this.#forgery ?? this.#revocations.problem;
    if (doubt !== undefined) return doubt;
    if (this.#passport_version === undefined) return 'no answer from passport since the start';
    if (this.age_ms >= QUIET_MS) return `no answer from passport for ${Math.round(this.age_ms / 1000)} s`;
    if (this.#rollback !== undefined) {
      const { version, after } = this.#rollback;
      return `passport was restored to an earlier state (version ${version} after ${after}): revoke all to be safe`;
    }
    return undefined;
  }

  get version(): number {
    return this.#revocations.version;
  }

  async run(stopping: AbortSignal): Promise<void> {
    for (let failures = 0; ;) {
      const began_ms = sched.now_ms();
      const news = await this.#askOnce(stopping).catch((error: unknown) => {
        // One line per outage, not one per attempt.
        if (!stopping.aborted && failures++ === 0) this.#init.onProblem(error);
        return 'failed' as const;
      });
      if (news !== 'failed') failures = 0;
      const isHasty = news === 'nothing' && sched.now_ms() - began_ms < HASTY_MS;
      if (isHasty || news === 'failed') await sleep(PAUSE_MS * (0.5 + sched.random()), stopping, 'revocations');
      stopping.throwIfAborted();
    }
  }

  async #askOnce(stopping: AbortSignal): Promise<'news' | 'nothing'> {
    // [storage I-4] [kms I-4] [index I-4] [edge I-4] [interop I-4]
    using deadline = Deadline.after('revocations', POLL_MS, { signal: stopping });
    const before = this.#passport_version;
    const document = await deadline.run((signal) => this.#ask(before, signal));
    this.#heard_ms = sched.now_ms();
    if (document === undefined) return 'nothing';
    const wasRolledBack = this.isRolledBack;
    // A later version does not contain the revocations that passport lost, unless it revokes all.
    if (this.#rollback !== undefined && document.all > this.#rollback.all) this.#rollback = undefined;
    if (document.version < this.version) {
      this.#rollback ??= { version: document.version, after: this.version, all: document.all };
    }
    this.#revocations.apply(document);
    this.#passport_version = document.version;
    if (this.isRolledBack && !wasRolledBack) this.#init.onProblem(new RonError('integrity', this.problem!));
    if (document.version === before) return 'nothing';
    // Already in force; storing it matters only for the next start.
    await this.#init.keep?.(this.#revocations.document(), stopping).catch(this.#init.onProblem);
    return 'news';
  }

  /** An authentic and current document; undefined if there is nothing new. */
  async #ask(before: number | undefined, signal: AbortSignal): Promise<RevocationDocument | undefined> {
    let answer: OpenedAnswer;
    try {
      answer = await this.#init.ask(before, signal);
      this.#forgery = undefined;
    } catch (error) {
      if (isRonError(error, 'integrity')) {
        this.#forgery = error.message;
        this.#refused_total += 1;
      }
      throw error;
    }
    const { time_ms, document } = answer;
    try {
      requireSameClock(time_ms);
      if (document !== undefined) requireCurrent(document);
      else if (before === undefined) throw new RonError('integrity', 'passport did not return its revocations');
    } catch (error) {
      this.#clock_problem = (error as RonError).message;
      this.#refused_total += 1;
      throw error;
    }
    this.#clock_problem = undefined;
    return document;
  }
}

function requireSameClock(time_ms: number): void {
  const ahead_ms = time_ms - sched.wall_ms();
  if (Math.abs(ahead_ms) <= CLOCK_SKEW_MS) return;
  const where = ahead_ms > 0 ? 'ahead of' : 'behind';
  throw new RonError(
    'integrity',
    `the clock of passport is ${Math.round(Math.abs(ahead_ms) / 1000)} s ${where} the clock of this service: set the clocks; capabilities of passport are refused until then`,
  );
}

function unknown(message: string): RonError {
  return new RonError('not_ready', message, { op: 'revocations', retry_after_ms: RETRY_AFTER_MS });
}

export interface AskPassportInit {
  readonly url: string;
  /** The pinned TLS key of passport. */
  readonly pin?: string | undefined;
  /** The service that polls, and its keys, by which the answer is authenticated. */
  readonly audience: Service;
  readonly keys: KeySource;
}

/** `GET /v1/passport/revocations`, a long poll that passport answers when a revocation was added. */
export function askPassport({ url, pin, audience, keys }: AskPassportInit): AskRevocations {
  const passport = reachPrivately(url, pin);
  return async (after, signal) => {
    const calls = new JsonCalls('v1/passport/', { ...passport, deadline_ms: POLL_MS, policy: POLICIES.once });
    const nonce = newNonce();
    const query = new URLSearchParams({ audience, nonce, ...(after !== undefined && { after: String(after) }) });
    const answer = await calls.get('revocations', `revocations?${query.toString()}`, signal);
    return await openAnswer(keys, { audience, nonce, after }, answer, signal);
  };
}
