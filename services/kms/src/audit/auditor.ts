/**
 * Records every operation in the audit log, whether it succeeded, was refused or failed.
 *
 * Contract: the result of an operation is returned only after its entry was recorded; in mode `strict` the operation fails
 * if its entry cannot be written. A refused or failed operation leaves an entry with its error code. Only requests that
 * were rejected at a full queue or during a drain leave none: nothing was attempted, and a flood must not fill the log.
 * Verifications of a tenant and refusals of a capability have an entry each up to a rate; more are counted in summaries.
 * While the log is damaged, no operation leaves an entry or a count; the log that an acceptance begins has an entry
 * `interrupted` for that time.
 * An operation is refused before it runs if the log has no room for its entry (`degraded_audit`).
 * Bound, overflow, cancellation: as the trail's and those of the space.
 */
import { isAlg } from '@ron/custody';
import { isRonError, RonError, sched, type Deadline } from '@ron/kernel';
import type { KeyRecord } from '../keys/key-record.ts';
import { parseKid, tenantOf } from '../keys/kid.ts';
import { encodeEvent, type AuditEvent, type AuditOp, type LogEntry } from './event.ts';
import type { LogSpace, Need } from './log-space.ts';
import type { Summaries } from './summaries.ts';
import type { AuditMode, AuditTrail } from './trail.ts';

/** The client of an operation. */
export interface Caller {
  /** The id of the capability. */
  readonly actor: string;
  /** The holder of the capability. */
  readonly subject: string;
  /** The ids of the capabilities that it was issued from, nearest first. */
  readonly chain: readonly string[];
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

export interface AuditorInit {
  readonly trail: Pick<AuditTrail, 'begin' | 'cancel' | 'record' | 'note' | 'count'>;
  readonly mode: () => AuditMode;
  readonly space: Pick<LogSpace, 'refusal' | 'hold' | 'reserve'>;
  readonly summaries: Pick<Summaries, 'takeTurn'>;
  /** Whether the log is damaged and takes no entries. */
  readonly isUnsound: () => boolean;
  /** Called for each operation that was refused for lack of room. */
  readonly onNoRoom: () => void;
}

/** The room that an operation needs before it runs: a long entry, with its hashes. */
const ENTRY_BYTES = 1024;
/** Operations whose entries may not use the reserve. */
const ORDINARY: ReadonlySet<AuditOp> = new Set(['verify', 'wrap', 'unwrap', 'datakey', 'derive'] as const);
const needOf = (op: AuditOp): Need => (ORDINARY.has(op) ? 'ordinary' : 'essential');

export class Auditor {
  readonly #init: AuditorInit;

  constructor(init: AuditorInit) {
    this.#init = init;
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
    this.begin(caller, attempt, 1);
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

  /**
   * Begins `count` operations; `recordSuccess` or `recordFailure` must follow for each. Throws after a close, and if the log
   * has no room for their entries.
   */
  begin(caller: Caller, attempt: Attempt, count: number): void {
    const { trail, space, onNoRoom } = this.#init;
    trail.begin(count);
    const refusal = space.refusal(needOf(attempt.op), tenantOf(attempt.kid), count * ENTRY_BYTES);
    if (refusal === undefined) return;
    onNoRoom();
    for (let each = 0; each < count; each++) this.recordFailure(caller, attempt, refusal, false);
    throw refusal;
  }

  /** Reserves room in the store, as `LogSpace.reserve`: a tenant must not fill the disk of the log with other data. */
  reserve(need: Need, tenant: string, bytes: number): (written_bytes: number) => void {
    try {
      return this.#init.space.reserve(need, tenant, bytes);
    } catch (error) {
      this.#init.onNoRoom();
      throw error;
    }
  }

  /** Records a success. Returns its log index. */
  recordSuccess(caller: Caller, attempt: Attempt, used: Used): Promise<number | undefined> {
    const event = eventOf(caller, attempt, used, 'ok');
    return this.#init.trail.record(this.#entryOf(event, event.tenant), caller.deadline.signal);
  }

  /** Records a success without waiting. It is never refused: without room it is counted in a summary or a gap. */
  noteSuccess(caller: Omit<Caller, 'deadline'>, attempt: Attempt, used: Used): void {
    this.#init.trail.begin(1);
    this.#noteOrCount(eventOf(caller, attempt, used, 'ok'), used.record.tenant);
  }

  /** Records an entry of another service. Rejects if the log does not take it, in every mode. Returns its log index. */
  async recordForeign(bytes: Uint8Array, holder: string, signal: AbortSignal): Promise<number> {
    const { trail, space, onNoRoom } = this.#init;
    const refusal = space.refusal('essential', holder, bytes.length);
    if (refusal !== undefined) {
      onNoRoom();
      throw refusal;
    }
    trail.begin(1);
    space.hold(holder, bytes.length);
    const log_index = await trail.record({ bytes, time_ms: sched.wall_ms() }, signal);
    if (log_index === undefined) throw new RonError('degraded_audit', 'the audit log did not take the entry');
    return log_index;
  }

  /** `wasTried`: whether the work began. */
  recordFailure(caller: Caller, attempt: Attempt, error: unknown, wasTried: boolean): void {
    const code = codeOf(error);
    const used = keyNamedBy(attempt.kid);
    // Text that is not a kid names no key, and arbitrary client input does not belong in the log.
    if (used === undefined || (!wasTried && (code === 'busy' || code === 'draining'))) this.#init.trail.cancel();
    // A capability names any tenant in a request that it is refused: the refusal counts for the capability.
    else this.#noteOrCount(eventOf(caller, attempt, used, code), `@${caller.actor}`);
  }

  /** Records an operation that was not allowed to begin. */
  recordRefusal(caller: Caller, attempt: Attempt, error: unknown): void {
    if (codeOf(error) === 'draining') return;
    this.#init.trail.begin(1);
    this.recordFailure(caller, attempt, error, false);
  }

  /**
   * Records an operation without side effects. Only a strict log makes the caller wait, and only for its own entry. A
   * damaged log takes no entries: the entry `interrupted` after its acceptance covers that time.
   */
  recordRead(caller: Caller, attempt: Attempt, used: Used, result: string): Promise<unknown> | undefined {
    const { trail, mode, isUnsound } = this.#init;
    trail.begin(1);
    const event = eventOf(caller, attempt, used, result);
    if (isUnsound()) trail.cancel();
    else if (mode() === 'strict' && this.#hasOwnEntry(event.tenant)) {
      return trail.record(this.#entryOf(event, event.tenant), caller.deadline.signal);
    } else if (mode() === 'strict') trail.count(event);
    else this.#noteOrCount(event, event.tenant);
    return undefined;
  }

  /** Whether this holder may have an entry for each of its verifications or refusals at the moment. */
  #hasOwnEntry(holder: string): boolean {
    const { space, summaries } = this.#init;
    return summaries.takeTurn(holder) && space.refusal('ordinary', holder, ENTRY_BYTES) === undefined;
  }

  #noteOrCount(event: AuditEvent, holder: string): void {
    if (this.#hasOwnEntry(holder)) this.#init.trail.note(this.#entryOf(event, holder));
    else this.#init.trail.count(event);
  }

  #entryOf(event: AuditEvent, holder: string): LogEntry {
    const bytes = encodeEvent(event);
    this.#init.space.hold(holder, bytes.length);
    return { bytes, time_ms: event.time_ms };
  }
}

const codeOf = (error: unknown): string => (isRonError(error) ? error.code : 'internal');

const TO_BE_MADE = /^([A-Za-z0-9._-]{1,64})\/([a-z0-9._-]{1,64})\/([a-z0-9-]{1,16})\/$/;

function eventOf(
  { actor, subject, chain }: Omit<Caller, 'deadline'>,
  attempt: Attempt,
  { kid, record }: Used,
  result: string,
): AuditEvent {
  const { op, op_id, input_hash, input_bytes } = attempt;
  const { alg, purpose, tenant } = record;
  const time_ms = sched.wall_ms();
  return { op, op_id, input_hash, input_bytes, actor, subject, chain, kid, alg, purpose, tenant, result, time_ms };
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
