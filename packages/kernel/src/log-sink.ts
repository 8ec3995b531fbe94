/**
 * Where log lines go: a file descriptor, written at once.
 *
 * Promise: a line that `write` took is with the operating system when `write` returns, so that a crash right after still
 * leaves it behind; only a descriptor that says "not now" makes lines wait here.
 * Bound: `pending_bytes_max` of waiting lines. Overflow: the newest line is dropped and counted.
 * Cancellation: `flushSync` gives up after its budget. When the reader is gone (EPIPE) lines are dropped and counted: a
 * service does not die because nobody reads its log.
 */
import { writeSync } from 'node:fs';
import { sched, type Timer } from './sched.ts';

const RETRY_MS = 20;

export interface LogSinkInit {
  /** Default 2: stdout is for answers, such as the ready line. */
  fd?: number;
  /** Default 1 MiB. */
  pending_bytes_max?: number;
  /** For tests. Default `fs.writeSync`. */
  writeSync?: (fd: number, bytes: Uint8Array) => number;
}

export class LogSink implements Disposable {
  readonly #fd: number;
  readonly #pending_bytes_max: number;
  readonly #writeSync: (fd: number, bytes: Uint8Array) => number;
  #pending: Uint8Array[] = [];
  #pending_bytes = 0;
  #retry: Timer | undefined;
  #isBroken = false;
  dropped_total = 0;

  constructor(init: LogSinkInit = {}) {
    this.#fd = init.fd ?? 2;
    this.#pending_bytes_max = init.pending_bytes_max ?? 1024 * 1024;
    this.#writeSync = init.writeSync ?? writeSync;
  }

  write(line: string): void {
    const bytes = Buffer.from(line);
    if (this.#isBroken || this.#pending_bytes + bytes.length > this.#pending_bytes_max) {
      this.dropped_total += 1;
      return;
    }
    this.#pending.push(bytes);
    this.#pending_bytes += bytes.length;
    // With lines already waiting the descriptor is known to be full: the timer tries again.
    if (this.#pending.length === 1) this.#drain();
  }

  /** Writes what waits, for at most `budget_ms`; then it is dropped. For the end of the process. */
  flushSync(budget_ms = 500): void {
    const until_ms = sched.now_ms() + budget_ms;
    this.#drain();
    while (this.#pending.length > 0 && sched.now_ms() < until_ms) {
      // The process ends here, so standing still is what is wanted.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
      this.#drain();
    }
    this.#retry?.cancel();
    this.#dropPending();
  }

  [Symbol.dispose](): void {
    this.flushSync(0);
  }

  #drain(): void {
    try {
      for (let first = this.#pending[0]; first !== undefined; first = this.#pending[0]) {
        const count = this.#writeSync(this.#fd, first);
        this.#pending_bytes -= count;
        if (count < first.length) this.#pending[0] = first.subarray(count);
        else this.#pending.shift();
      }
    } catch (error) {
      if (isBusy(error)) return this.#retryLater();
      this.#isBroken = true;
      this.#dropPending();
    }
  }

  #retryLater(): void {
    this.#retry?.cancel();
    this.#retry = sched.timer(RETRY_MS, () => this.#drain(), 'log.retry');
  }

  #dropPending(): void {
    this.dropped_total += this.#pending.length;
    this.#pending = [];
    this.#pending_bytes = 0;
  }
}

let standardError: LogSink | undefined;

/** The one sink on standard error of this process. What waits in it is flushed when the process exits. */
export function standardErrorSink(): LogSink {
  if (standardError === undefined) {
    const sink = new LogSink({ fd: 2 });
    process.on('exit', () => sink.flushSync());
    standardError = sink;
  }
  return standardError;
}

function isBusy(error: unknown): boolean {
  return error instanceof Error && 'code' in error && (error.code === 'EAGAIN' || error.code === 'EBUSY');
}
