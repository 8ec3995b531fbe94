/**
 * Records every operation in the audit log, whether it succeeded, was refused or failed.
 *
 * Contract: the result of an operation is returned only after its entry was recorded; in mode `strict` the operation fails
 * if its entry cannot be written. A refused or failed operation leaves an entry with its error code. Only requests that
 * were rejected at a full queue or during a drain leave none: nothing was attempted, and a flood must not fill the log.
 * Bound, overflow, cancellation: as the trail's.
 */
import { isAlg } from '@ron/custody';
import { isRonError, sched, type Deadline } from '@ron/kernel';
import type { KeyRecord } from '../keys/key-record.ts';
import { parseKid } from '../keys/kid.ts';
import type { AuditEvent, AuditOp } from './event.ts';
import type { AuditMode, AuditTrail } from './trail.ts';

/** The client of an operation. */
export interface Caller {
  /** The id of the capability. */
  readonly actor: string;
  readonly deadline: Deadline;
}

/** The facts about an operation that are known before it runs. */
export interface Attempt {
  readonly op: AuditOp;
  /** As the caller wrote it. */
  readonly kid: string;
  readonly op_id?: string | undefined;
  readonly input_hash?: string | undefined;
  readonly input_bytes?: number | undefined;
}

/** The key and version that an operation used. */
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
   * Runs the work through `turn` and records it. Returns the answer and its log index, if it has one. `turn` may refuse to
   * start the work.
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

  /** Begins `count` operations; `recordSuccess` or `recordFailure` must follow for each. Throws after a close. */
  begin(count: number): void {
    this.#trail.begin(count);
  }

  /** Records a success. Returns its log index. */
  recordSuccess(caller: Caller, attempt: Attempt, used: Used): Promise<number | undefined> {
    return this.#trail.record(eventOf(caller, attempt, used, 'ok'), caller.deadline.signal);
  }

  /** Records a success without waiting. An entry that the log cannot take is counted in a gap. */
  noteSuccess(caller: Omit<Caller, 'deadline'>, attempt: Attempt, used: Used): void {
    this.begin(1);
    this.#trail.note(eventOf(caller, attempt, used, 'ok'));
  }

  /** `wasTried`: whether the work began. */
  recordFailure(caller: Caller, attempt: Attempt, error: unknown, wasTried: boolean): void {
    const code = codeOf(error);
    const used = keyNamedBy(attempt.kid);
    // Text that is not a kid names no key, and arbitrary client input does not belong in the log.
    if (used === undefined || (!wasTried && (code === 'busy' || code === 'draining'))) this.#trail.cancel();
    else this.#trail.note(eventOf(caller, attempt, used, code));
  }

  /** Records an operation that was not allowed to begin. */
  recordRefusal(caller: Caller, attempt: Attempt, error: unknown): void {
    if (codeOf(error) === 'draining') return;
    this.begin(1);
    this.recordFailure(caller, attempt, error, false);
  }

  /** Records an operation without side effects: only a strict log makes the caller wait. */
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

function eventOf(
  { actor }: Omit<Caller, 'deadline'>,
  attempt: Attempt,
  { kid, record }: Used,
  result: string,
): AuditEvent {
  const { op, op_id, input_hash, input_bytes } = attempt;
  const { alg, purpose, tenant } = record;
  return { op, op_id, input_hash, input_bytes, actor, kid, alg, purpose, tenant, result, time_ms: sched.wall_ms() };
}

/** The key that the kid claims to name, from the text alone. */
function keyNamedBy(kid: string): Used | undefined {
  try {
    return { kid, record: parseKid(kid) };
  } catch {
    // A key that does not exist yet: `<tenant>/<purpose>/<alg>/`.
    const [, tenant, purpose, alg] = TO_BE_MADE.exec(kid) ?? [];
    if (tenant === undefined || purpose === undefined || !isAlg(alg)) return undefined;
    return { kid, record: { tenant, purpose, alg } };
  }
}
