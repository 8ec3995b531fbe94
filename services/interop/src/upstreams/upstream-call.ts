/**
 * One call to an upstream: its permit from the breaker, its latency, and its outcome.
 *
 *     using call = storage.begin('put', deadline);
 *     try {
 *       await send(body, () => call.progress());
 *       call.restart();             // the last byte was sent: only now the upstream must hurry
 *       const answer = await head;
 *       call.end();
 *     } catch (error) {
 *       throw call.fail(error);     // typed, with the reason
 *     }
 *
 * Contract: the outcome is reported once, by `end` or `fail`; later calls change nothing. Without either it counts as cancelled.
 * The latency runs from the start, or from the last `restart`, until `answered`, `end` or `fail`.
 * A passed deadline counts as an error if the call had the time that makes it slow, or half of its budget: a call that began
 * shortly before the deadline of its request proves nothing.
 * Bound: one permit. Cancellation: a caller that gives up does not count as an error of the upstream.
 */
import { AnswerError } from '@ron/client';
import { isRonError, RonError, sched, type Deadline } from '@ron/kernel';
import { outcomeOf, type Outcome } from './outcome.ts';

export const REASON = 'DOWNSTREAM_UNAVAILABLE';

export interface CallInit {
  readonly upstream: string;
  readonly op: string;
  /** Bounds the call. Default: the caller bounds it. */
  readonly deadline?: Deadline | undefined;
  /** The latency at which the upstream counts as slow. */
  readonly slow_ms: number;
  /** The half-open breaker waits for this call. */
  readonly isTrial: boolean;
  /** Gives the permit back; called once. */
  readonly onVerdict: (outcome: Outcome) => void;
  /** Takes the sample; called once, unless the outcome is `none`. */
  readonly onSample: (latency_ms: number, isError: boolean) => void;
}

export class UpstreamCall implements Disposable {
  readonly #init: CallInit;
  #begun_ms = sched.now_ms();
  #answered_ms: number | undefined;
  #hasVerdict = false;
  #hasEnded = false;

  constructor(init: CallInit) {
    this.#init = init;
  }

  /** The last byte of a streamed request was sent: the latency begins here. */
  restart(): void {
    this.#begun_ms = sched.now_ms();
  }

  /** The head of the answer has arrived: the latency ends here, though the body may take long. */
  answered(): void {
    this.#answered_ms ??= sched.now_ms();
    this.progress();
  }

  /**
   * The upstream took or sent bytes. That closes a half-open breaker: it counts a trial call without a verdict as failed after its
   * cooldown, and a stream may take longer.
   */
  progress(): void {
    if (this.#init.isTrial) this.#giveVerdict('ok');
  }

  end(): void {
    this.#report('ok');
  }

  /** Reports the failure, and returns the error for the client. */
  fail(error: unknown): unknown {
    const outcome = this.#outcomeOf(error);
    const duration_ms = this.#latency_ms;
    this.#report(outcome);
    return typed(error, { ...this.#init, outcome, duration_ms, isLate: this.#isLate(error) });
  }

  [Symbol.dispose](): void {
    this.#report('none');
  }

  get #latency_ms(): number {
    return (this.#answered_ms ?? sched.now_ms()) - this.#begun_ms;
  }

  #outcomeOf(error: unknown): Outcome {
    const { deadline, slow_ms } = this.#init;
    if (error instanceof AnswerError) return outcomeOf(error);
    if (this.#isLate(error)) {
      const enough_ms = Math.min(slow_ms, (deadline?.budget_ms ?? Infinity) / 2);
      return sched.now_ms() - this.#begun_ms >= enough_ms ? 'error' : 'none';
    }
    // [interop I-5] The deadline was cancelled: the caller gave up.
    if (deadline !== undefined && deadline.remaining_ms === 0) return 'none';
    return outcomeOf(error);
  }

  #isLate(error: unknown): boolean {
    if (error instanceof AnswerError) return false;
    return this.#init.deadline?.expired === true || isRonError(error, 'timeout');
  }

  #report(outcome: Outcome): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#giveVerdict(outcome);
    if (outcome !== 'none') this.#init.onSample(this.#latency_ms, outcome === 'error');
  }

  #giveVerdict(outcome: Outcome): void {
    if (this.#hasVerdict) return;
    this.#hasVerdict = true;
    this.#init.onVerdict(outcome);
  }
}

interface Failure {
  readonly upstream: string;
  readonly op: string;
  readonly outcome: Outcome;
  readonly duration_ms: number;
  readonly isLate: boolean;
}

/** [interop I-4] Failures of the upstream become 503 or 504 with the reason; refusals of the request stay as they are. */
function typed(error: unknown, { upstream, op, outcome, duration_ms, isLate }: Failure): unknown {
  if (isLate) return lateError({ upstream, op, duration_ms }, error);
  if (outcome !== 'error') return error;
  const retry_after_ms = isRonError(error) ? error.retry_after_ms : undefined;
  return new RonError('not_ready', `${upstream} failed ${op}: ${causeOf(error)}`, {
    op,
    reason: REASON,
    ...(retry_after_ms !== undefined && { retry_after_ms }),
    details: { upstream, op },
    cause: error,
  });
}

/** 504 with the operation and the duration. */
export function lateError(
  { upstream, op, duration_ms }: Pick<Failure, 'upstream' | 'op' | 'duration_ms'>,
  cause: unknown,
): RonError {
  const took_ms = Math.round(duration_ms);
  return new RonError('timeout', `${upstream} did not answer ${op} in time: it was cancelled after ${took_ms} ms`, {
    op: isRonError(cause) ? (cause.op ?? op) : op,
    reason: REASON,
    details: { upstream, op, duration_ms: took_ms },
    cause,
  });
}

/** The reverse proxy reports a failed connection and an invalid answer with one code; a system error is the cause of the former. */
function isBrokenConnection(error: unknown): boolean {
  if (!isRonError(error, 'bad_gateway') || !(error.cause instanceof Error)) return false;
  const { code } = error.cause as NodeJS.ErrnoException;
  // The parser of HTTP has codes of its own.
  return code !== undefined && !code.startsWith('HPE_');
}

/** In the terms of the error table: messages of an upstream may name paths of this node. */
function causeOf(error: unknown): string {
  if (error instanceof AnswerError) return `it answered ${error.http_status} (${error.code})`;
  if (isRonError(error, 'unreachable') || isBrokenConnection(error)) return 'it is unreachable';
  return 'its answer is malformed';
}
