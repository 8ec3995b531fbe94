/**
 * The seam between our code and time, chance and waiting.
 *
 * Contract: this is the only file that touches the clock, timers and randomness. All other code uses `sched`, so the
 * explorer can install its own and run the real kernel under every schedule.
 * Bound: a parked waiter is one object, owned by the code that parked it.
 * Cancellation: a timer is cancelled by its handle; a parked waiter is woken or failed exactly once by its owner.
 * It runs in browsers too, so it imports nothing of Node.
 */
import { onAbort } from './sync/on-abort.ts';

/** A pending timer. Cancelling twice, or after it fired, does nothing. */
export interface Timer {
  cancel(): void;
}

/** One suspended continuation: `promise` settles when its owner calls `wake` or `fail`; later calls do nothing. */
export interface Parked<T> {
  readonly promise: Promise<T>;
  readonly wake: (value: T) => void;
  readonly fail: (error: unknown) => void;
}

export interface TimerInit {
  /** Whether a pending timer keeps the process alive. Default false: a service lives by its sockets, not its timers. */
  keepAlive?: boolean;
}

export interface Sched {
  /** Monotonic milliseconds with a fraction; only differences mean anything. */
  now_ms(): number;
  /** Unix time in milliseconds. It may jump: never measure a duration with it. */
  wall_ms(): number;
  /** Uniform in [0, 1), for jitter. Not for secrets. */
  random(): number;
  /** Bytes fit for keys and nonces. */
  randomBytes(count: number): Uint8Array<ArrayBuffer>;
  /** Calls `fire` once, `delay_ms` from now. `label` names the wait in explorer traces. */
  timer(delay_ms: number, fire: () => void, label: string, init?: TimerInit): Timer;
  /** Suspends the caller until it is woken. Every wait of the kernel goes through here. */
  park<T>(label: string): Parked<T>;
  /** Lets everything else that is ready run first. For long loops. */
  pause(label: string): Promise<void>;
  /** Starts a named task: its first step runs at once. The explorer also tries schedules in which it starts later. */
  task<T>(label: string, run: () => Promise<T>): Promise<T>;
}

const TIMER_DELAY_MS_MAX = 2 ** 31 - 1;

class RealTimer implements Timer {
  #handle: NodeJS.Timeout | undefined;
  constructor(delay_ms: number, fire: () => void, keepAlive: boolean) {
    // Node fires at once when the delay does not fit 31 bits; a wait of 24 days or more is cut to the longest it can do.
    this.#handle = setTimeout(fire, Math.min(Math.max(delay_ms, 0), TIMER_DELAY_MS_MAX));
    // A browser's timer is a number; there is no process to keep alive there.
    if (!keepAlive) this.#handle.unref?.();
  }
  cancel(): void {
    clearTimeout(this.#handle);
    this.#handle = undefined;
  }
}

/** The platform fills at most this much in one call. */
const RANDOM_BYTES_AT_ONCE = 65_536;

function fillRandomly(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  for (let at = 0; at < bytes.length; at += RANDOM_BYTES_AT_ONCE) {
    crypto.getRandomValues(bytes.subarray(at, at + RANDOM_BYTES_AT_ONCE));
  }
  return bytes;
}

export const realSched: Sched = {
  now_ms: () => performance.now(),
  wall_ms: () => Date.now(),
  random: () => Math.random(),
  randomBytes: (count) => fillRandomly(new Uint8Array(count)),
  timer: (delay_ms, fire, _label, init) => new RealTimer(delay_ms, fire, init?.keepAlive ?? false),
  park: <T>(): Parked<T> => {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    return { promise, wake: resolve, fail: reject };
  },
  pause: () => new Promise<void>((resolve) => void setImmediate(resolve)),
  task: (_label, run) => run(),
};

/** The scheduler in force. A live binding: read it at each use, never keep a copy. */
export let sched: Sched = realSched;

/** Installs another scheduler and returns the one it replaces. For the explorer and for tests, which put it back. */
export function installSched(next: Sched): Sched {
  const previous = sched;
  sched = next;
  return previous;
}

/** Called with each kernel object that a step reads or writes; how the explorer learns which steps are independent. */
let probe: ((touched: object) => void) | undefined;

/** Every primitive calls this when its state is read or written. Costs one comparison in production. */
export function touch(object: object): void {
  if (probe !== undefined) probe(object);
}

/** Sets or clears the probe and returns the one it replaces. For the explorer. */
export function installProbe(next: ((touched: object) => void) | undefined): typeof probe {
  const previous = probe;
  probe = next;
  return previous;
}

/** Waits `delay_ms`; rejects with the signal's reason when aborted first. */
export function sleep(delay_ms: number, signal: AbortSignal, label = 'sleep'): Promise<void> {
  if (signal.aborted) return Promise.reject(signal.reason);
  const parked = sched.park<void>(label);
  const onFire = (): void => {
    registration[Symbol.dispose]();
    parked.wake();
  };
  const timer = sched.timer(delay_ms, onFire, label);
  const registration = onAbort(signal, (reason) => {
    timer.cancel();
    parked.fail(reason);
  });
  return parked.promise;
}
