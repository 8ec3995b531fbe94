/**
 * Who is in a PKCS #11 module at this moment, over all threads of this process.
 *
 * Promise: `alone` runs its work while no other thread is in a call of the module, and `enter` lets nobody in meanwhile. So
 * a module is started and ended under nobody: most do not survive that, and the process would go with them. A thread
 * whose call never returns keeps its place for as long as it lives; when it is gone, whoever owns it says so (`gone`).
 * Bound: `THREADS_MAX` threads for each module. Overflow: `not_ready`.
 * Cancellation: none, it runs in threads that block; every wait has its limit.
 *
 *     [holder | restarts | calls that went well | thread, inside | thread, inside | ...]
 *
 * A thread says that it is inside before it looks for a holder, and a holder takes its place before it looks who is
 * inside: one of the two sees the other.
 */
import { threadId } from 'node:worker_threads';
import { sched } from '@ron/kernel';
import { awayError } from '../backend/backend.ts';

/** Threads of all backends of one module, those that hang in a call included. */
const THREADS_MAX = 256;
const HOLDER = 0;
const RESTARTS = 1;
const WORKED = 2;
const PLACES = 3;
const WORDS = PLACES + 2 * THREADS_MAX;
/** How long a caller waits for whoever starts the module. */
const ENTER_MS_MAX = 1000;

const gates = new Map<string, SharedArrayBuffer>();

/** The gate of a module, one for the whole process. To be asked on the main thread. */
export function gateOf(module: string): SharedArrayBuffer {
  const gate = gates.get(module) ?? new SharedArrayBuffer(WORDS * Int32Array.BYTES_PER_ELEMENT);
  gates.set(module, gate);
  return gate;
}

/** The thread is gone, whatever it did last. */
export function gone(gate: SharedArrayBuffer, thread: number): void {
  const words = new Int32Array(gate);
  for (let place = PLACES; place < WORDS; place += 2) {
    if (Atomics.load(words, place) !== thread) continue;
    leave(words, place + 1);
    Atomics.store(words, place, 0);
  }
  if (Atomics.compareExchange(words, HOLDER, thread, 0) === thread) Atomics.notify(words, HOLDER);
}

/** The gate as one thread uses it. */
export class ModuleGate {
  readonly #words: Int32Array;
  /** Where this thread says whether it is inside. */
  readonly #inside: number;

  /** Throws `not_ready` when too many threads hang. */
  constructor(gate: SharedArrayBuffer) {
    this.#words = new Int32Array(gate);
    this.#inside = claim(this.#words) + 1;
  }

  /** How often the module was started anew: what was open before is not any more. */
  get restarts(): number {
    return Atomics.load(this.#words, RESTARTS);
  }

  /** How many calls went well, of all threads. */
  get worked(): number {
    return Atomics.load(this.#words, WORKED);
  }

  /** Runs `call` among others. Throws `not_ready` when the module is being started for too long. */
  among<T>(call: () => T): T {
    this.#enter();
    try {
      const value = call();
      Atomics.add(this.#words, WORKED, 1);
      return value;
    } finally {
      leave(this.#words, this.#inside);
    }
  }

  /** Runs `work` when nobody is inside, or gives false when somebody is for longer than `wait_ms`. */
  alone(wait_ms: number, work: () => void): boolean {
    const words = this.#words;
    const ends_ms = sched.now_ms() + wait_ms;
    if (!take(words, ends_ms)) return false;
    try {
      if (!othersLeft(words, this.#inside, ends_ms)) return false;
      work();
      return true;
    } finally {
      Atomics.store(words, HOLDER, 0);
      Atomics.notify(words, HOLDER);
    }
  }

  /** To be told inside of `alone`. */
  restarted(): void {
    Atomics.add(this.#words, RESTARTS, 1);
  }

  #enter(): void {
    const words = this.#words;
    const ends_ms = sched.now_ms() + ENTER_MS_MAX;
    for (;;) {
      Atomics.store(words, this.#inside, 1);
      const holder = Atomics.load(words, HOLDER);
      if (holder === 0) return;
      leave(words, this.#inside);
      const left_ms = ends_ms - sched.now_ms();
      if (left_ms <= 0) throw awayError('the module of the token does not start');
      Atomics.wait(words, HOLDER, holder, left_ms);
    }
  }
}

function claim(words: Int32Array): number {
  for (let place = PLACES; place < WORDS; place += 2) {
    if (Atomics.compareExchange(words, place, 0, threadId) === 0) return place;
  }
  throw awayError('too many calls hang in the module of the token');
}

function take(words: Int32Array, ends_ms: number): boolean {
  for (;;) {
    const holder = Atomics.compareExchange(words, HOLDER, 0, threadId);
    if (holder === 0) return true;
    const left_ms = ends_ms - sched.now_ms();
    if (left_ms <= 0) return false;
    Atomics.wait(words, HOLDER, holder, left_ms);
  }
}

function othersLeft(words: Int32Array, own: number, ends_ms: number): boolean {
  for (let inside = PLACES + 1; inside < WORDS; inside += 2) {
    if (inside !== own && !hasLeft(words, inside, ends_ms)) return false;
  }
  return true;
}

function hasLeft(words: Int32Array, inside: number, ends_ms: number): boolean {
  while (Atomics.load(words, inside) === 1) {
    const left_ms = ends_ms - sched.now_ms();
    if (left_ms <= 0) return false;
    Atomics.wait(words, inside, 1, left_ms);
  }
  return true;
}

function leave(words: Int32Array, inside: number): void {
  Atomics.store(words, inside, 0);
  Atomics.notify(words, inside);
}
