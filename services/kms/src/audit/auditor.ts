/**
 * Puts every operation into the audit log, however it ended: done, refused, or failed.
 *
 * Promise: an operation that did something is told about only after its entry was recorded; where nothing may happen
 * without an entry (`strict`), one whose entry cannot be written fails. One that was refused or failed leaves an entry
 * with its code. Only what was turned away at the door leaves none: nothing was tried, and a flood must not fill the log.
 * Bound, overflow, cancellation: as the trail's.
 */
import { isAlg } from '@ron/custody';
import { isRonError, sched, type Deadline } from '@ron/kernel';
import type { KeyRecord } from '../keys/key-record.ts';
import { parseKid } from '../keys/kid.ts';
import type { AuditEvent, AuditOp } from './event.ts';
import type { AuditMode, AuditTrail } from './trail.ts';

/** Who asks, and until when. */
export interface Caller {
  /** The id of the capability. */
  readonly actor: string;
  readonly deadline: Deadline;
}

/** What is known of an operation before it is done. */
export interface Attempt {
  readonly op: AuditOp;
  /** As the caller wrote it. */
  readonly kid: string;
  readonly op_id?: string | undefined;
  readonly input_hash?: string | undefined;
  readonly input_bytes?: number | undefined;
}

/** The key and the version that an operation used. */
export interface Used {
  readonly kid: string;
  readonly record: Pick<KeyRecord, 'tenant' | 'purpose' | 'alg'>;
}

type Trail = Pick<AuditTrail, 'begin' | 'cancel' | 'record' | 'note'>;

export class Auditor {
  readonly #trail: Trail;
  readonly #mode: () => AuditMode;

  constructor(trail: Trail, mode: () => AuditMode) {
    this.#trail = trail;
    this.#mode = mode;
  }

  /**
   * Does the work in its turn and records it; gives what it gave and its place in the log, if it has one. `turn` may
   * refuse to let the work begin.
   */
  async runRecorded<A>(
    caller: Caller,
    attempt: Attempt,
    turn: (work: () => Promise<A>) => Promise<A>,
    work: () => Promise<A>,
    used: (answer: A) => Used,
  ): Promise<{ readonly answer: A; readonly log_index: number | undefined }> {
    this.begin(1);
    let wasTried = false;
    let answer: A;
    try {
      answer = await turn(() => {
        wasTried = true;
        return work();
      });
    } catch (error) {
      this.recordFailure(caller, attempt, error, wasTried);
      throw error;
    }
    return { answer, log_index: await this.recordSuccess(caller, attempt, used(answer)) };
  }

  /** So many operations begin: `done` or `failed` follows for each. Throws when none may begin any more. */
  begin(count: number): void {
    this.#trail.begin(count);
  }

  /** The place of an operation that went well. */
  recordSuccess(caller: Caller, attempt: Attempt, used: Used): Promise<number | undefined> {
    return this.#trail.record(eventOf(caller, attempt, used, 'ok'), caller.deadline.signal);
  }

  /** `wasTried`: whether it got further than the door. */
  recordFailure(caller: Caller, attempt: Attempt, error: unknown, wasTried: boolean): void {
    const code = codeOf(error);
    const used = claimed(attempt.kid);
    // What is no kid at all names no key, and what strangers write does not go into the log.
    if (used === undefined || (!wasTried && (code === 'busy' || code === 'draining'))) this.#trail.cancel();
    else this.#trail.note(eventOf(caller, attempt, used, code));
  }

  /** An operation that was not allowed to begin. */
  recordRefusal(caller: Caller, attempt: Attempt, error: unknown): void {
    if (codeOf(error) === 'draining') return;
    this.begin(1);
    this.recordFailure(caller, attempt, error, false);
  }

  /** For operations that change nothing: only a strict log is waited for. */
  recordRead(caller: Caller, attempt: Attempt, used: Used, result: string): Promise<unknown> | undefined {
    this.begin(1);
    const event = eventOf(caller, attempt, used, result);
    if (this.#mode() === 'strict') return this.#trail.record(event, caller.deadline.signal);
    this.#trail.note(event);
    return undefined;
  }
}

const codeOf = (error: unknown): string => (isRonError(error) ? error.code : 'internal');

const TO_BE_MADE = /^([A-Za-z0-9._-]{1,64})\/([a-z0-9._-]{1,64})\/([a-z0-9-]{1,16})\/$/;

function eventOf({ actor }: Caller, attempt: Attempt, { kid, record }: Used, result: string): AuditEvent {
  const { op, op_id, input_hash, input_bytes } = attempt;
  const { alg, purpose, tenant } = record;
  return { op, op_id, input_hash, input_bytes, actor, kid, alg, purpose, tenant, result, time_ms: sched.wall_ms() };
}

/** The key that the caller meant, from its name alone. */
function claimed(kid: string): Used | undefined {
  try {
    return { kid, record: parseKid(kid) };
  } catch {
    // A key that is yet to be made: `<tenant>/<purpose>/<alg>/`.
    const [, tenant, purpose, alg] = TO_BE_MADE.exec(kid) ?? [];
    if (tenant === undefined || purpose === undefined || !isAlg(alg)) return undefined;
    return { kid, record: { tenant, purpose, alg } };
  }
}
