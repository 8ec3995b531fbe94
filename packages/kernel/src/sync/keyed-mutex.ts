/**
 * One `Mutex` for each key in use. Sections of different keys run concurrently.
 *
 * Contract: two sections of one key never overlap and run in the order of arrival. With `preempt` a newcomer aborts the
 * signal of every earlier section of its key (`conflict`); it still waits until they have ended, and an earlier section
 * that has not begun yet begins with an aborted signal. `close` without a reason serves the callers that wait; with a
 * reason it rejects them and aborts the running sections with it. It resolves when the last section has ended.
 * Bound: `keys_max` keys, `waiters_max` waiting callers for each. Overflow: `busy`, at once; a refused newcomer preempts
 * nothing. Cancellation: an aborted waiter leaves with the signal's reason. A section gets a signal that aborts with its
 * caller's, on preemption and on `close(reason)`.
 *
 *     const uploads = new KeyedMutex('uploads', { keys_max: 4096, waiters_max: 64, preempt: true });
 *     await uploads.run(id, signal, async (mine) => {
 *       for await (const bytes of body) await write(bytes, mine);
 *     });
 */
import { assert, RonError } from '../errors.ts';
import { NEVER } from './never.ts';
import { touch } from '../sched.ts';
import { Mutex } from './mutex.ts';
import { onAbort } from './on-abort.ts';

const RETRY_AFTER_MS = 1000;

export interface KeyedMutexInit {
  keys_max: number;
  /** For each key. */
  waiters_max: number;
  /** Whether a newcomer aborts the earlier sections of its key. Default false. */
  preempt?: boolean;
}

interface Lock {
  readonly mutex: Mutex;
  /** One for each section that runs or waits, in the order of arrival. */
  readonly sections: Set<Section>;
}

class Section {
  /** Ends the wait for the mutex. */
  readonly waiting = new AbortController();
  /** The signal of the section. Another one if a newcomer may abort it: that does not end the wait. */
  readonly running: AbortController;

  constructor(canBePreempted: boolean) {
    this.running = canBePreempted ? new AbortController() : this.waiting;
  }

  /** The caller left, or the mutex was closed. */
  end(reason: unknown): void {
    this.running.abort(reason);
    this.waiting.abort(reason);
  }
}

export class KeyedMutex implements AsyncDisposable {
  readonly name: string;
  readonly #init: KeyedMutexInit;
  readonly #locks = new Map<string, Lock>();
  readonly #closing = new AbortController();
  #isClosed = false;

  constructor(name: string, init: KeyedMutexInit) {
    assert(Number.isSafeInteger(init.keys_max) && init.keys_max > 0, `mutex ${name}: keys_max is a positive number`);
    this.name = name;
    this.#init = init;
  }

  get isClosed(): boolean {
    touch(this);
    return this.#isClosed;
  }

  /** Keys with a section that runs or waits. */
  get size(): number {
    touch(this);
    return this.#locks.size;
  }

  /** Whether a section of the key runs or waits. */
  isHeld(key: string): boolean {
    touch(this);
    return this.#locks.has(key);
  }

  async run<T>(key: string, signal: AbortSignal, section: (signal: AbortSignal) => Promise<T>): Promise<T> {
    touch(this);
    signal.throwIfAborted();
    this.#closing.signal.throwIfAborted();
    if (this.#isClosed) throw new RonError('closed', `${this.name} is closed`);
    const lock = this.#locks.get(key) ?? this.#add(key);
    if (this.#init.preempt === true && !lock.mutex.isFull) preempt(lock);
    const mine = new Section(this.#init.preempt === true);
    lock.sections.add(mine);
    // Controllers and listeners of our own: `AbortSignal.any` takes longer than all the rest.
    using _ = onAbort(signal, (reason) => mine.end(reason));
    try {
      return await lock.mutex.run(mine.waiting.signal, () => section(mine.running.signal));
    } finally {
      touch(this);
      lock.sections.delete(mine);
      if (lock.sections.size === 0) this.#drop(key, lock);
    }
  }

  /** Refuses new callers and waits until the last section has ended. The signal ends only this wait. Idempotent. */
  async close(reason?: RonError, signal: AbortSignal = NEVER): Promise<void> {
    touch(this);
    this.#isClosed = true;
    if (reason !== undefined) this.#end(reason);
    await Promise.all([...this.#locks.values()].map(({ mutex }) => mutex.close(signal)));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #end(reason: RonError): void {
    this.#closing.abort(reason);
    for (const { sections } of this.#locks.values()) for (const section of sections) section.end(reason);
  }

  #add(key: string): Lock {
    const { keys_max, waiters_max } = this.#init;
    if (this.#locks.size >= keys_max) {
      throw new RonError('busy', `${this.name}: ${keys_max} keys are in use`, { retry_after_ms: RETRY_AFTER_MS });
    }
    const lock: Lock = { mutex: new Mutex(this.name, { waiters_max }), sections: new Set() };
    this.#locks.set(key, lock);
    return lock;
  }

  /** Closing the unused mutex takes its abort listeners off the signals of former waiters. */
  #drop(key: string, { mutex }: Lock): void {
    this.#locks.delete(key);
    void mutex.close();
  }
}

function preempt({ sections }: Lock): void {
  if (sections.size === 0) return;
  const reason = new RonError('conflict', 'a newer request took over');
  for (const { running } of sections) running.abort(reason);
}
