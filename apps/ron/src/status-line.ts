/**
 * One line that says how something is now.
 *
 * Promise: on a terminal it is drawn over itself and gone at the end; elsewhere a line is written when a while has passed
 * since the last. It goes to standard error; with `--json` it is silent.
 */
import { sched } from '@ron/kernel/core';
import type { Io } from './io.ts';
import { printable } from './io.ts';

const CLEAR_LINE = '\r\u001b[K';
const WRITE_EVERY_MS = 5000;

export class StatusLine implements Disposable {
  readonly #io: Io;
  #told_ms = sched.now_ms();
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
    if (sched.now_ms() - this.#told_ms < WRITE_EVERY_MS) return;
    this.#told_ms = sched.now_ms();
    this.#io.note(text);
  }

  [Symbol.dispose](): void {
    if (this.#isDrawn) this.#io.stderr.write(CLEAR_LINE);
  }
}
