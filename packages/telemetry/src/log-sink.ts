/**
 * Writes log lines to a file descriptor, many at a time, without blocking the event loop.
 *
 * Contract: lines are gathered and written once per turn of the event loop, in order, by non-blocking writes. `flushSync`
 * writes them at once: it runs after each `fatal` line. `end` does so when the process exits, and later lines, those of
 * exit handlers, are written as they come: an exit loses no line that its reader takes within the budget. A process that
 * is killed (SIGKILL) loses the lines of the turn under way.
 * Not promised: whole lines when several processes share one pipe and its reader is slow. A batch above PIPE_BUF may then
 * be written in parts, with lines of the other process between them. Give each process its own pipe.
 * Bound: `pending_bytes_max` of lines that wait. Overflow: the newest line is dropped and counted; when the reader has
 * caught up, `onLost` is called once with the number of lines that were lost since the last call.
 * Errors: a write that fails (a full disk, an I/O error) is tried again every `FAULT_RETRY_MS`; until it works the lines
 * wait within the bound. Only when the reader is gone (EPIPE) or the descriptor is closed (EBADF) are all lines dropped and
 * counted: a service does not end because its log has no reader.
 * Cancellation: `flushSync` gives up after its budget, and at once when a write fails. After `end` one budget is shared by
 * all lines.
 *
 *   const sink = new LogSink({ fd: 2 });
 *   sink.onLost = (lines) => log.warn({ lines }, 'lost log lines');
 *   sink.write('{"msg":"ready"}\n');
 *   process.prependListener('exit', () => sink.end());
 */
// oxlint-disable-next-line ron/no-blocking-calls -- the descriptor is non-blocking
import { writeSync } from 'node:fs';
import { nonBlockingFd, type NonBlockingFd } from './non-blocking-fd.ts';
import { sched, type Timer } from '@ron/kernel';

/** While the descriptor is full. */
const RETRY_MS = 5;
/** While writes fail for another reason: a disk that is full now is seldom not full a moment later. */
const FAULT_RETRY_MS = 500;
/** Written in one call; more lines than that are not left for the end of the turn. */
const BATCH_BYTES = 64 * 1024;
/** How long `flushSync` and `end` wait for a reader. */
const FLUSH_MS = 500;
/** The descriptor is full, or a signal came. */
const BUSY: ReadonlySet<string> = new Set(['EAGAIN', 'EBUSY', 'EINTR']);
/** No later write can work. */
const GONE: ReadonlySet<string> = new Set(['EPIPE', 'EBADF']);

export interface LogSinkInit {
  /** Default 2: stdout is for answers, such as the ready line. */
  fd?: number;
  /** Default 1 MiB. */
  pending_bytes_max?: number;
  /** For tests. Default `fs.writeSync`. */
  writeSync?: (fd: number, bytes: Uint8Array) => number;
}

export class LogSink implements Disposable {
  /** Called when lines were lost and writes work again, with the code of the last write that failed. May throw. */
  onLost: ((lines: number, code: string | undefined) => void) | undefined;
  readonly #out: NonBlockingFd;
  readonly #pending_bytes_max: number;
  readonly #writeSync: (fd: number, bytes: Uint8Array) => number;
  /** Lines that are not part of a batch yet. */
  #lines: string[] = [];
  #lines_bytes = 0;
  /** The rest of the batch that is being written, and the number of its lines. */
  #batch: Uint8Array = new Uint8Array(0);
  #batch_lines = 0;
  #isScheduled = false;
  /** Set while the descriptor is full or writes fail. */
  #retry: Timer | undefined;
  /** Whether the last write failed, other than by a full descriptor. */
  #isFaulty = false;
  /** The code of the last write that failed since the last report. */
  #code: string | undefined;
  #isBroken = false;
  /** Set by `end`: until when a line may be waited for. */
  #end_ms: number | undefined;
  #reported_total = 0;
  dropped_total = 0;

  constructor(init: LogSinkInit = {}) {
    const fd = init.fd ?? 2;
    this.#out = init.writeSync === undefined ? nonBlockingFd(fd) : { fd, close: () => undefined };
    this.#pending_bytes_max = init.pending_bytes_max ?? 1024 * 1024;
    this.#writeSync = init.writeSync ?? writeSync;
  }

  /** Bytes that wait. */
  get pending_bytes(): number {
    return this.#lines_bytes + this.#batch.length;
  }

  write(line: string): void {
    const bytes = Buffer.byteLength(line);
    if (this.#isBroken || this.pending_bytes + bytes > this.#pending_bytes_max) {
      this.dropped_total += 1;
      return;
    }
    this.#lines.push(line);
    this.#lines_bytes += bytes;
    if (this.#end_ms !== undefined) this.#flushUntil(this.#end_ms);
    else if (this.#retry !== undefined) return;
    else if (this.#lines_bytes >= BATCH_BYTES) this.#drain();
    else this.#schedule();
  }

  /** Writes the lines that wait, for at most `budget_ms`. It blocks: for the end of the process and its last words. */
  flushSync(budget_ms = FLUSH_MS): void {
    this.#flushUntil(Math.min(sched.now_ms() + budget_ms, this.#end_ms ?? Infinity));
  }

  /** No turn of the event loop comes any more: writes the lines that wait, and from now on each line at once. */
  end(budget_ms = FLUSH_MS): void {
    this.#end_ms ??= sched.now_ms() + budget_ms;
    this.#flushUntil(this.#end_ms);
  }

  #flushUntil(until_ms: number): void {
    this.#drain();
    while (this.pending_bytes > 0 && !this.#isFaulty && sched.now_ms() < until_ms) {
      // oxlint-disable-next-line ron/no-blocking-calls -- the process ends, and the budget is short
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, RETRY_MS);
      this.#drain();
    }
  }

  /** Drops the lines that cannot be written at once, and those that come later. */
  [Symbol.dispose](): void {
    if (this.#isBroken) return;
    this.#drain();
    this.#break();
    this.#out.close();
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    void sched.pause('log.flush').then(() => {
      this.#isScheduled = false;
      this.#drain();
    });
  }

  #drain(): void {
    this.#retry?.cancel();
    this.#retry = undefined;
    try {
      while (this.pending_bytes > 0) {
        if (this.#batch.length === 0) this.#nextBatch();
        const count = this.#writeSync(this.#out.fd, this.#batch);
        this.#batch = this.#batch.subarray(count);
      }
    } catch (error) {
      this.#failed(codeOf(error));
      return;
    }
    this.#isFaulty = false;
    this.#reportLost();
  }

  #failed(code: string | undefined): void {
    this.#code = code;
    if (code !== undefined && GONE.has(code)) return this.#break();
    this.#isFaulty = code === undefined || !BUSY.has(code);
    // The rest of the batch is kept, so that a line of which a part was written is completed.
    this.#retry = sched.timer(this.#isFaulty ? FAULT_RETRY_MS : RETRY_MS, () => this.#drain(), 'log.retry');
  }

  #nextBatch(): void {
    this.#batch = Buffer.from(this.#lines.join(''));
    this.#batch_lines = this.#lines.length;
    this.#lines = [];
    this.#lines_bytes = 0;
  }

  #reportLost(): void {
    const lost = this.dropped_total - this.#reported_total;
    if (lost === 0 || this.onLost === undefined) return;
    const code = this.#code;
    this.#reported_total = this.dropped_total;
    this.#code = undefined;
    try {
      this.onLost(lost, code);
    } catch {
      // There is no log to write it to, and the lines go on.
    }
  }

  /** There is no reader any more. */
  #break(): void {
    this.#retry?.cancel();
    this.#retry = undefined;
    this.#isBroken = true;
    this.dropped_total += this.#lines.length + (this.#batch.length > 0 ? this.#batch_lines : 0);
    this.#lines = [];
    this.#lines_bytes = 0;
    this.#batch = new Uint8Array(0);
  }
}

let standardError: LogSink | undefined;

/** The one sink on standard error of this process. It ends when the process exits, before other exit handlers run. */
export function standardErrorSink(): LogSink {
  if (standardError === undefined) {
    const sink = new LogSink({ fd: 2 });
    // First, as a handler may log, and may call process.exit, after which no other one runs.
    process.prependListener('exit', () => sink.end());
    standardError = sink;
  }
  return standardError;
}

function codeOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error ? String(error.code) : undefined;
}
