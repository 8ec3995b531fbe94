/**
 * A token bucket: paces bytes (repair) and requests (rps).
 *
 * Contract: over any window of `t` seconds no more than `rate_per_s * t + burst` tokens are given out, even across rate
 * changes. Waiters are served first come, first served; `tryTake` never overtakes them. With a rate above 0 every waiter
 * is served in the end: when the bucket's timer fires. While the event loop is late, tokens are idle until then.
 * Bound: `waiters_max` callers wait; one timer exists while callers wait, none otherwise.
 * Overflow: beyond `waiters_max`, `take` fails with `paced` and a `retry_after_ms`. Requesting more than `burst` is a
 * defect and throws: the caller must split such a request, because it knows where its data may be cut. Only `charge` takes tokens
 * that are not there: later callers wait until they have flowed in.
 * Cancellation: an aborted `take` rejects with the signal's reason, has taken nothing, and the next in line moves up at
 * once. A `take` that was already granted stays granted.
 *
 * Tokens are counted in whole millionths, so sums are exact and nothing accumulates: the rounding loss of a refill
 * down is less than a millionth, and it never rounds up.
 */
import { assert, RonError } from '../errors.ts';
import { sched, touch, type Parked, type Timer } from '../sched.ts';
import { onAbort } from '../sync/on-abort.ts';

export interface TokenBucketInit {
  /** Tokens that flow in per second. 0 stops the flow until `setRate`. */
  rate_per_s: number;
  /** Tokens the bucket holds; it starts full. A whole number >= 1. */
  burst: number;
  /** Callers of `take` that may wait. Default 1024. */
  waiters_max?: number;
  /** Called when a `take` gets its tokens, with the time it stood in line: the pacing histogram. Must not throw. */
  onTaken?: (count: number, waited_ms: number) => void;
}

/** Millionths in a token. */
const UNIT = 1e6;
/** The largest burst whose millionths are exact. */
const BURST_MAX = Math.floor(Number.MAX_SAFE_INTEGER / UNIT);
/** Waits are rounded up to this part of a millisecond: short, yet long enough to move a clock of any age. */
const WAIT_STEPS_PER_MS = 1024;

interface Waiter {
  readonly need: number;
  readonly since_ms: number;
  readonly parked: Parked<void>;
  readonly registration: Disposable;
}

export class TokenBucket implements AsyncDisposable {
  readonly name: string;
  readonly burst: number;
  readonly #waiters_max: number;
  readonly #full: number;
  readonly #onTaken: ((count: number, waited_ms: number) => void) | undefined;
  #rate_per_s: number;
  /** Millionths in the bucket at `#at_ms`. */
  #level: number;
  #at_ms: number;
  #line: Waiter[] = [];
  #timer: Timer | undefined;
  #closed = false;

  constructor(name: string, init: TokenBucketInit) {
    const { burst } = init;
    assert(Number.isInteger(burst) && burst >= 1 && burst <= BURST_MAX, `bucket ${name}: 1 <= burst <= ${BURST_MAX}`);
    this.name = name;
    this.burst = burst;
    this.#waiters_max = init.waiters_max ?? 1024;
    this.#rate_per_s = checkedRate(name, init.rate_per_s);
    this.#full = burst * UNIT;
    this.#onTaken = init.onTaken;
    this.#level = this.#full;
    this.#at_ms = sched.now_ms();
  }

  get rate_per_s(): number {
    return this.#rate_per_s;
  }

  get waiters(): number {
    return this.#line.length;
  }

  /** Takes `count` tokens if they are there and no caller waits for them. */
  tryTake(count = 1): boolean {
    const need = this.#checked(count);
    if (this.#closed || this.#line.length > 0) return false;
    return this.#spend(need, sched.now_ms());
  }

  /** Takes as many whole tokens as are there, at most `count`, and says how many. */
  takeUpTo(count: number): number {
    const need = this.#checked(count);
    if (this.#closed || this.#line.length > 0) return 0;
    const now_ms = sched.now_ms();
    const level = this.#levelAt(now_ms);
    const taken = level >= need ? count : Math.max(0, Math.floor(level / UNIT));
    this.#setLevel(level - taken * UNIT, now_ms);
    return taken;
  }

  /** Takes `count` tokens, any whole number, for work that was done already: they may be missing until they have flowed in. */
  charge(count: number): void {
    touch(this);
    assert(
      Number.isInteger(count) && count >= 0 && count <= BURST_MAX,
      `bucket ${this.name}: a charge is a whole number`,
    );
    const now_ms = sched.now_ms();
    this.#setLevel(this.#levelAt(now_ms) - count * UNIT, now_ms);
  }

  /** Takes `count` tokens, waiting in line for them. */
  async take(count: number, signal: AbortSignal): Promise<void> {
    const need = this.#checked(count);
    signal.throwIfAborted();
    if (this.#closed) throw this.#closedError();
    const since_ms = sched.now_ms();
    if (this.#line.length === 0 && this.#spend(need, since_ms)) return this.#onTaken?.(count, 0);
    if (this.#line.length >= this.#waiters_max) {
      throw new RonError('paced', `${this.name} has ${this.#waiters_max} waiters`, this.#hint(count));
    }
    const parked = sched.park<void>(`tokens ${this.name}`);
    const registration = onAbort(signal, (reason) => this.#abandon(waiter, reason));
    const waiter: Waiter = { need, since_ms, parked, registration };
    this.#line.push(waiter);
    if (this.#line.length === 1) this.#serve(since_ms);
    await parked.promise;
  }

  /** Changes the rate from now on. Tokens in the bucket stay; waiters see the new rate at once. */
  setRate(rate_per_s: number): void {
    touch(this);
    const next_per_s = checkedRate(this.name, rate_per_s);
    // One reading of the clock: time between two would count at the old rate for one part and at the new for the other.
    const now_ms = sched.now_ms();
    this.#spend(0, now_ms);
    this.#rate_per_s = next_per_s;
    this.#serve(now_ms);
  }

  /** How long until `count` tokens are there for a new caller, after those that wait; Infinity at rate 0. */
  retryAfter_ms(count = 1): number {
    let need = this.#checked(count);
    for (const waiter of this.#line) need += waiter.need;
    return this.#wait_ms(need, sched.now_ms());
  }

  /** Rejects waiting and later callers. */
  close(): void {
    touch(this);
    this.#closed = true;
    for (const waiter of this.#line.splice(0)) this.#leave(waiter).fail(this.#closedError());
    this.#serve(sched.now_ms());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  /** The cost of a request in millionths. */
  #checked(count: number): number {
    touch(this);
    if (!(Number.isInteger(count) && count >= 0 && count <= this.burst)) {
      throw new RonError(
        'internal',
        `bucket ${this.name}: cannot take ${count}, a whole number from 0 to ${this.burst}`,
      );
    }
    return count * UNIT;
  }

  #levelAt(now_ms: number): number {
    const flowed = Math.floor((now_ms - this.#at_ms) * this.#rate_per_s * (UNIT / 1000));
    return Math.min(this.#full, this.#level + flowed);
  }

  #spend(need: number, now_ms: number): boolean {
    const level = this.#levelAt(now_ms);
    if (level < need) return false;
    this.#setLevel(level - need, now_ms);
    return true;
  }

  #setLevel(level: number, now_ms: number): void {
    this.#level = level;
    this.#at_ms = now_ms;
  }

  #wait_ms(need: number, now_ms: number): number {
    const missing = need - this.#levelAt(now_ms);
    if (missing <= 0) return 0;
    return Math.ceil((missing / (this.#rate_per_s * (UNIT / 1000))) * WAIT_STEPS_PER_MS) / WAIT_STEPS_PER_MS;
  }

  /** Serves the queue from its head while there are tokens, and sets the timer for the first waiter left. */
  #serve(now_ms: number): void {
    touch(this);
    for (let head = this.#line[0]; head !== undefined && this.#spend(head.need, now_ms); head = this.#line[0]) {
      this.#line.shift();
      this.#onTaken?.(head.need / UNIT, now_ms - head.since_ms);
      this.#leave(head).wake();
    }
    this.#timer?.cancel();
    this.#timer = undefined;
    const first = this.#line[0];
    if (first === undefined || this.#rate_per_s === 0) return;
    this.#timer = sched.timer(
      this.#wait_ms(first.need, now_ms),
      () => this.#serve(sched.now_ms()),
      `tokens ${this.name}`,
    );
  }

  #abandon(waiter: Waiter, reason: unknown): void {
    touch(this);
    const wasFirst = this.#line[0] === waiter;
    this.#line.splice(this.#line.indexOf(waiter), 1);
    this.#leave(waiter).fail(reason);
    if (wasFirst) this.#serve(sched.now_ms());
  }

  #leave(waiter: Waiter): Parked<void> {
    waiter.registration[Symbol.dispose]();
    return waiter.parked;
  }

  #hint(count: number): { retry_after_ms: number } | undefined {
    const retry_after_ms = this.retryAfter_ms(count);
    return Number.isFinite(retry_after_ms) ? { retry_after_ms } : undefined;
  }

  #closedError(): RonError {
    return new RonError('closed', `bucket ${this.name} is closed`);
  }
}

function checkedRate(name: string, rate_per_s: number): number {
  assert(rate_per_s >= 0 && Number.isFinite(rate_per_s), `bucket ${name}: the rate must be a finite number >= 0`);
  return rate_per_s;
}
