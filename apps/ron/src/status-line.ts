/**
 * One status line on standard error.
 *
 * Contract: on a terminal the line is redrawn in place and erased at the end; otherwise a new line is written at most every
 * `WRITE_EVERY_MS`. Silent with `--json`.
 */
import { sched } from '@ron/kernel/core';
import type { Io } from './io.ts';
import { printable } from './printable.ts';

const CLEAR_LINE = '\r\u001b[K';
const WRITE_EVERY_MS = 5000;

export class StatusLine implements Disposable {
  readonly #io: Io;
  #written_ms = sched.now_ms();
  #isDrawn = false;

  constructor(io: Io) {
    this.#io = io;
  }

  update(text: string): void {
    if (this.#io.json) return;
    if (this.#io.stderr.isTTY) {
      this.#isDrawn = true;
      this.#io.stderr.write(CLEAR_LINE + printable(text).slice(0, (this.#io.stderr.columns || 80) - 1));
      return;
    }
    if (sched.now_ms() - this.#written_ms < WRITE_EVERY_MS) return;
    this.#written_ms = sched.now_ms();
    this.#io.note(text);
  }

  [Symbol.dispose](): void {
    if (this.#isDrawn) this.#io.stderr.write(CLEAR_LINE);
  }
}
