/**
 * The log of one service: a file of bounded size, and its last lines in memory.
 *
 * Promise: a chunk that `write` took is with the operating system when it returns. When the file would grow beyond
 * `bytes_max` it becomes `.1`, replacing the one before, and a new one begins: at most twice `bytes_max` on disk.
 * A disk that takes no more costs the lines, not the service. Without a path only the last lines are kept.
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

  /** The last lines, readable. */
  get tail(): string {
    return this.#tail.split('\n').map(readable).join('\n').trimEnd();
  }

  /** Forgets the last lines: what comes now is of another run. */
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
      // The disk is full or gone. The service has to go on.
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

/** A JSON log line as a sentence; any other line as it is. */
function readable(line: string): string {
  try {
    const { level, msg, err } = JSON.parse(line) as { level?: string; msg?: string; err?: { message?: string } };
    return `${level}: ${msg}${err?.message === undefined ? '' : `: ${err.message}`}`;
  } catch {
    return line;
  }
}
