/**
 * The log of one service: a rotated file, and its last lines in memory.
 *
 * Contract: `write` passes the chunk to the operating system before it returns. If the disk is full or fails, lines are
 * dropped and the service continues. Without a path, only the last lines are kept.
 * Bound: `bytes_max` for the file and for its predecessor `.1`, and `TAIL_CHARS` in memory.
 */
import { closeSync, fstatSync, mkdirSync, openSync, renameSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';

const TAIL_CHARS = 16_384;

export interface LogFileInit {
  path: string | undefined;
  /** Default 8 MiB. */
  bytes_max?: number;
}

export class LogFile implements Disposable {
  readonly path: string | undefined;
  readonly #bytes_max: number;
  #fd: number | undefined;
  #bytes = 0;
  #tail = '';

  constructor(init: LogFileInit) {
    this.path = init.path;
    this.#bytes_max = init.bytes_max ?? 8 * 1024 * 1024;
    if (this.path !== undefined) mkdirSync(dirname(this.path), { recursive: true, mode: 0o700 });
    this.#open();
  }

  /** The last lines, formatted for a terminal. */
  get tail(): string {
    return this.#tail.split('\n').map(readable).join('\n').trimEnd();
  }

  /** Clears the tail at the start of a new run. */
  startRun(): void {
    this.#tail = '';
  }

  write(chunk: Buffer): void {
    this.#tail = (this.#tail + chunk.toString('utf8')).slice(-TAIL_CHARS);
    if (this.#fd === undefined) return;
    try {
      if (this.#bytes > 0 && this.#bytes + chunk.length > this.#bytes_max) this.#rotate();
      this.#bytes += writeSync(this.#fd, chunk);
    } catch {
      // The disk is full or failed: drop the chunk.
    }
  }

  [Symbol.dispose](): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }

  #open(): void {
    if (this.path === undefined) return;
    this.#fd = openSync(this.path, 'a', 0o600);
    this.#bytes = fstatSync(this.#fd).size;
  }

  #rotate(): void {
    this[Symbol.dispose]();
    renameSync(this.path!, `${this.path!}.1`);
    this.#open();
  }
}

/** Formats a JSON log line as text; returns any other line unchanged. */
function readable(line: string): string {
  try {
    const { level, msg, err } = JSON.parse(line) as { level?: string; msg?: string; err?: { message?: string } };
    return `${level}: ${msg}${err?.message === undefined ? '' : `: ${err.message}`}`;
  } catch {
    return line;
  }
}
