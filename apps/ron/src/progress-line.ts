/**
 * Shows the progress of a transfer that takes longer than a second, on standard error.
 *
 * Contract: on a terminal, one line with rate and time left, redrawn at most ten times a second and erased at the end;
 * otherwise one line for each 10 %. Silent with `--json`.
 */
import type { Progress } from '@ron/client';
import { sched } from '@ron/kernel/core';
import { humanDuration, humanSize } from './format.ts';
import type { Io } from './io.ts';

const SILENT_MS = 1000;
const REDRAW_MS = 100;
const BAR_CHARS = 24;
const CLEAR_LINE = '\r\u001b[K';

export class ProgressLine implements Disposable {
  readonly #label: string;
  readonly #quantity: (amount: number) => string;
  readonly #io: Io;
  readonly #isTerminal: boolean;
  readonly #began_ms = sched.now_ms();
  #drawn_ms = Number.NEGATIVE_INFINITY;
  #first_bytes: number | undefined;
  #tenth = 0;

  /** `quantity` formats an amount; the default formats bytes. */
  constructor(label: string, io: Io, quantity: (amount: number) => string = humanSize) {
    this.#label = label;
    this.#io = io;
    this.#quantity = quantity;
    this.#isTerminal = io.stderr.isTTY;
  }

  update({ done_bytes, total_bytes }: Progress): void {
    if (this.#io.json) return;
    // Bytes of an earlier attempt do not count towards the rate.
    this.#first_bytes ??= done_bytes;
    const now_ms = sched.now_ms();
    const elapsed_ms = now_ms - this.#began_ms;
    if (elapsed_ms < SILENT_MS) return;
    const rate = ((done_bytes - this.#first_bytes) / elapsed_ms) * 1000;
    const text = describe(this.#label, done_bytes, total_bytes, rate, this.#quantity);
    if (this.#isTerminal) this.#redraw(text, done_bytes, total_bytes, now_ms);
    else this.#writeTenth(text, done_bytes, total_bytes);
  }

  [Symbol.dispose](): void {
    if (this.#isTerminal && this.#drawn_ms > 0) this.#io.stderr.write(CLEAR_LINE);
  }

  #redraw(text: string, done_bytes: number, total_bytes: number | undefined, now_ms: number): void {
    if (now_ms - this.#drawn_ms < REDRAW_MS) return;
    this.#drawn_ms = now_ms;
    const width = this.#io.stderr.columns || 80;
    const line = total_bytes === undefined ? text : `${bar(done_bytes / total_bytes)} ${text}`;
    this.#io.stderr.write(CLEAR_LINE + line.slice(0, width - 1));
  }

  #writeTenth(text: string, done_bytes: number, total_bytes: number | undefined): void {
    if (total_bytes === undefined || total_bytes === 0) return;
    const tenth = Math.floor((done_bytes / total_bytes) * 10);
    // A transfer that is complete at the first update gets no line.
    if (tenth <= this.#tenth || (tenth === 10 && this.#tenth === 0)) return;
    this.#tenth = tenth;
    this.#io.note(text);
  }
}

function describe(
  label: string,
  done_bytes: number,
  total_bytes: number | undefined,
  rate: number,
  quantity: (amount: number) => string,
): string {
  const speed = `${quantity(Math.max(0, Math.round(rate)))}/s`;
  if (total_bytes === undefined || total_bytes === 0) return `${label}: ${quantity(done_bytes)}, ${speed}`;
  const percent = Math.floor((done_bytes / total_bytes) * 100);
  const left = rate > 0 ? `, ${humanDuration(((total_bytes - done_bytes) / rate) * 1000)} left` : '';
  return `${label}: ${percent} % of ${quantity(total_bytes)}, ${speed}${left}`;
}

function bar(fraction: number): string {
  const full = Math.min(BAR_CHARS, Math.floor(fraction * BAR_CHARS));
  return `[${'='.repeat(full)}${' '.repeat(BAR_CHARS - full)}]`;
}
