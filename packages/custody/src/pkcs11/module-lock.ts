/**
 * A readers-writer lock on a PKCS #11 module, across all threads of this process.
 *
 * Contract: `runExclusive` runs its work while no other thread is in a call of the module, and no thread enters meanwhile.
 * Modules are started and finalized only this way: most of them crash the process otherwise. A thread whose call never
 * returns stays registered until it exits; then its owner calls `threadExited`.
 * Bound: `THREADS_MAX` threads per module. Overflow: `not_ready`.
 * Cancellation: the threads block, but every wait has a time limit.
 *
 *     [holder | restarts | successful calls | thread, inside | thread, inside | ...]
 *
 * A reader sets its `inside` flag before it reads the holder, and a writer sets the holder before it reads the flags, so at
 * least one of the two sees the other.
 */
import { threadId } from 'node:worker_threads';
import { sched } from '@ron/kernel';
import { unavailable } from '../backend/backend.ts';

/** Threads of all backends of one module, including those that hang in a call. */
const THREADS_MAX = 256;
const HOLDER = 0;
const RESTARTS = 1;
const WORKED = 2;
const PLACES = 3;
const WORDS = PLACES + 2 * THREADS_MAX;
/** How long a caller waits while another thread starts the module. */
const ENTER_MS_MAX = 1000;

const locks = new Map<string, SharedArrayBuffer>();

/** The lock of a module, one per process. Call it on the main thread. */
export function lockOf(module: string): SharedArrayBuffer {
  const lock = locks.get(module) ?? new SharedArrayBuffer(WORDS * Int32Array.BYTES_PER_ELEMENT);
  locks.set(module, lock);
  return lock;
}

/** Releases everything that an exited thread held. */
export function threadExited(lock: SharedArrayBuffer, thread: number): void {
  const words = new Int32Array(lock);
  for (let place = PLACES; place < WORDS; place += 2) {
    if (Atomics.load(words, place) !== thread) continue;
    leave(words, place + 1);
    Atomics.store(words, place, 0);
  }
  if (Atomics.compareExchange(words, HOLDER, thread, 0) === thread) Atomics.notify(words, HOLDER);
}

/** The lock as used by one thread. */
export class ModuleLock {
  readonly #words: Int32Array;
  /** The index of this thread's `inside` flag. */
  readonly #inside: number;

  /** Throws `not_ready` if too many threads hang. */
  constructor(lock: SharedArrayBuffer) {
    this.#words = new Int32Array(lock);
    this.#inside = claim(this.#words) + 1;
  }

  /** How often the module was restarted. Sessions and handles from before a restart are invalid. */
  get restarts(): number {
    return Atomics.load(this.#words, RESTARTS);
  }

  /** The number of successful calls of all threads. */
  get worked(): number {
    return Atomics.load(this.#words, WORKED);
  }

  /** Runs `call` concurrently with other shared calls. Throws `not_ready` if the module takes too long to start. */
  runShared<T>(call: () => T): T {
    this.#enter();
    try {
      const value = call();
      Atomics.add(this.#words, WORKED, 1);
      return value;
    } finally {
      leave(this.#words, this.#inside);
    }
  }

  /** Runs `work` while no thread is inside. Returns false if a thread stays inside for longer than `wait_ms`. */
  runExclusive(wait_ms: number, work: () => void): boolean {
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

  /** Call it inside `runExclusive`. */
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
      if (left_ms <= 0) throw unavailable('the PKCS #11 module does not start');
      // oxlint-disable-next-line ron/no-blocking-calls -- in a thread of a BlockingPool
      Atomics.wait(words, HOLDER, holder, left_ms);
    }
  }
}

function claim(words: Int32Array): number {
  for (let place = PLACES; place < WORDS; place += 2) {
    if (Atomics.compareExchange(words, place, 0, threadId) === 0) return place;
  }
  throw unavailable('too many calls hang in the PKCS #11 module');
}

function take(words: Int32Array, ends_ms: number): boolean {
  for (;;) {
    const holder = Atomics.compareExchange(words, HOLDER, 0, threadId);
    if (holder === 0) return true;
    const left_ms = ends_ms - sched.now_ms();
    if (left_ms <= 0) return false;
    // oxlint-disable-next-line ron/no-blocking-calls -- in a thread of a BlockingPool
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
    // oxlint-disable-next-line ron/no-blocking-calls -- in a thread of a BlockingPool
    Atomics.wait(words, inside, 1, left_ms);
  }
  return true;
}

function leave(words: Int32Array, inside: number): void {
  Atomics.store(words, inside, 0);
  Atomics.notify(words, inside);
}
