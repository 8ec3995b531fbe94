/**
 * The brownout mode that an operator sets: `on` sheds, `off` never sheds, `auto` leaves it to the sentinel.
 *
 * Contract: `on` and `off` end at `until_ms`, at most 24 h ahead. Readers compare the clocks themselves, so the mode ends even if
 * no task runs. It also ends when the time that was left at the request has passed on the monotonic clock: a wall clock that is
 * set back does not prolong it.
 * The mode is not kept on disk: a restart returns to `auto`, so no forgotten mode outlives the process.
 * Bound: one request. [interop I-1] [interop I-2] The cell `policy_meta` has the mode; requests read a snapshot of it.
 */
import { RonError, sched, Snapshot, type Cell } from '@ron/kernel';
import { INTEROP_LIMITS, type BrownoutMode, type BrownoutRequest } from '@ron/proto';

export interface Manual {
  readonly request: BrownoutRequest;
  /** On the monotonic clock. */
  readonly ends_ms: number;
}

export interface ManualState {
  /** The last request. It may be over. */
  brownout: Manual;
}

export const AUTO: Manual = { request: { mode: 'auto' }, ends_ms: Infinity };

export class ManualMode {
  readonly #cell: Cell<ManualState>;
  readonly #current: Snapshot<Manual>;

  constructor(cell: Cell<ManualState>) {
    this.#cell = cell;
    this.#current = new Snapshot(
      'brownout_mode',
      cell.withSync(({ brownout }) => brownout),
    );
  }

  get mode(): BrownoutMode {
    return this.request.mode;
  }

  /** The request in force; `auto` once its time has passed. */
  get request(): BrownoutRequest {
    const current = this.#current.load();
    return isOver(current) ? AUTO.request : current.request;
  }

  /** Throws `validation` for a request whose end is missing, past or too far. */
  set(request: BrownoutRequest): void {
    const next = request.mode === 'auto' ? autoOf(request) : timed(request);
    this.#cell.withSync((state) => this.#change(state, next));
  }

  /** Returns to `auto` if the time has passed; true if it did so now. */
  expire(): boolean {
    return this.#cell.withSync((state) => {
      if (!isOver(state.brownout)) return false;
      this.#change(state, AUTO);
      return true;
    });
  }

  #change(state: ManualState, next: Manual): void {
    state.brownout = next;
    this.#current.swap(next);
  }
}

function isOver({ request: { until_ms }, ends_ms }: Manual): boolean {
  return until_ms !== undefined && (sched.wall_ms() >= until_ms || sched.now_ms() >= ends_ms);
}

function autoOf({ until_ms, why }: BrownoutRequest): Manual {
  if (until_ms !== undefined) throw new RonError('validation', 'until_ms: the mode auto has no end');
  return { request: { mode: 'auto', ...(why !== undefined && { why }) }, ends_ms: Infinity };
}

function timed({ mode, until_ms, why }: BrownoutRequest): Manual {
  if (until_ms === undefined) throw new RonError('validation', `until_ms: the mode ${mode} needs an end`);
  const left_ms = until_ms - sched.wall_ms();
  if (left_ms <= 0) throw new RonError('validation', 'until_ms lies in the past');
  if (left_ms > INTEROP_LIMITS.brownout_ms) throw new RonError('validation', 'until_ms is more than 24 h ahead');
  return { request: { mode, until_ms, ...(why !== undefined && { why }) }, ends_ms: sched.now_ms() + left_ms };
}
