/**
 * Hears of revocations from passport: one question at a time, which passport answers when something changed, or after a
 * second with nothing new.
 *
 * Contract: a revocation is in force here within two seconds after passport acknowledged it, while passport answers. What
 * was heard is in force at once and kept for the next start.
 *   Before passport was heard for the first time after a start, what it issued is refused (`not_ready`): it may have been
 *   revoked while nobody listened here. What the node issued to its owner and services goes by what was known before, so
 *   that a node can start at all: passport itself needs keys from kms.
 *   While passport is away later on, the last known revocations hold and capabilities go on to be accepted: nobody else can
 *   revoke, so nothing is missed but what passport could not take either. With `max_age_ms` they are refused once nothing
 *   was heard for that long.
 *   A passport that tells of less than it told before was put back to an earlier state: nothing is forgotten here, and
 *   `problem` says so until it knows as much again.
 * Bound: one question, `ASK_MS` for it; a pause after a failure or a hasty answer. Cancellation: `run` ends by its signal.
 */
import { JsonCalls } from '@ron/client/calls';
import { Deadline, RonError, sched, sleep } from '@ron/kernel';
import type { RevocationEpochs } from '../revocations/epochs.ts';
import { type RevocationDocument, requireDocument, Revocations } from '../revocations/revocations.ts';
import { isNodeSubject } from '../capability/subjects.ts';

/** Longer than passport holds a question; with the pause and the next one still below two seconds. */
const ASK_MS = 1400;
export const HOLD_MS = 1000;
const PAUSE_MS = 200;
/** An answer with nothing new that comes sooner was not held. */
const HASTY_MS = HOLD_MS / 2;
/** From here on `/readyz` tells. */
const QUIET_MS = 5000;
const RETRY_AFTER_MS = 1000;

/** Asks for what is newer than a version; undefined: nothing is. */
export type AskRevocations = (after: number | undefined, signal: AbortSignal) => Promise<unknown>;

export interface RevocationWatchInit {
  readonly ask: AskRevocations;
  /** What an earlier life had heard. */
  readonly known?: RevocationDocument | undefined;
  readonly keep?: ((document: RevocationDocument, signal: AbortSignal) => Promise<void>) | undefined;
  /** Default: for ever. */
  readonly max_age_ms?: number | undefined;
  readonly onProblem: (error: unknown) => void;
}

export class RevocationWatch implements RevocationEpochs {
  readonly #init: RevocationWatchInit;
  readonly #revocations = new Revocations();
  #heard_ms: number;
  /** What passport said last that it knows; undefined: nothing since the start. */
  #told: number | undefined;

  constructor(init: RevocationWatchInit) {
    this.#init = init;
    this.#heard_ms = sched.now_ms();
    if (init.known !== undefined) this.#revocations.apply(init.known);
  }

  floor(subject: string): number {
    if (this.#told === undefined && !isNodeSubject(subject)) {
      throw unknown('passport was not heard of since the start: what it issued may have been revoked');
    }
    const { max_age_ms } = this.#init;
    if (max_age_ms !== undefined && this.age_ms > max_age_ms) {
      throw unknown('passport was not heard of for too long to know what is revoked');
    }
    return this.#revocations.floor(subject);
  }

  /** Since passport was heard last, or since the start. */
  get age_ms(): number {
    return sched.now_ms() - this.#heard_ms;
  }

  /** Subjects with a revocation that is known. */
  get size(): number {
    return this.#revocations.size;
  }

  /** Whether passport knows less than it told before. */
  get isPutBack(): boolean {
    return this.#told !== undefined && this.#told < this.#revocations.version;
  }

  /** Why a revocation may be unknown here, or elsewhere; undefined when passport was heard just now. */
  get problem(): string | undefined {
    if (this.#told === undefined) return 'passport was not heard of since the start';
    if (this.age_ms >= QUIET_MS) return `passport was not heard of for ${Math.round(this.age_ms / 1000)} s`;
    if (this.isPutBack) {
      return `passport was put back to an earlier state (version ${this.#told} after ${this.version}): revoke all to be safe`;
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
        // One line for an outage, not one for each try.
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
    // [storage I-4] [kms I-4]
    using deadline = Deadline.after('revocations', ASK_MS, { signal: stopping });
    const before = this.#told;
    const answer = await deadline.run((signal) => this.#init.ask(before, signal));
    const document = answer === undefined && before !== undefined ? undefined : requireDocument(answer);
    this.#heard_ms = sched.now_ms();
    if (document === undefined) return 'nothing';
    const wasPutBack = this.isPutBack;
    this.#revocations.apply(document);
    this.#told = document.version;
    if (this.isPutBack && !wasPutBack) this.#init.onProblem(new RonError('integrity', this.problem!));
    if (document.version === before) return 'nothing';
    // In force already; that it is also kept matters for the next start only.
    await this.#init.keep?.(this.#revocations.document(), stopping).catch(this.#init.onProblem);
    return 'news';
  }
}

function unknown(message: string): RonError {
  return new RonError('not_ready', message, { op: 'revocations', retry_after_ms: RETRY_AFTER_MS });
}

/** `GET /v1/passport/revocations`, held by passport until there is something to tell. */
export function askPassport(where: () => Promise<string>): AskRevocations {
  const policy = { tries_max: 1, backoff_ms: () => 0 };
  return async (after, signal) => {
    const calls = new JsonCalls('v1/passport/', { url: await where(), deadline_ms: ASK_MS, policy });
    return await calls.get('revocations', `revocations${after === undefined ? '' : `?after=${after}`}`, signal);
  };
}
