/**
 * The last error that a nack stated for a waiting message; it becomes part of the dead letter.
 *
 * Bound: `ERRORS_MAX` errors of at most 1 KiB each. Overflow: the oldest error is forgotten, never its message.
 */
const ERRORS_MAX = 8192;

export class LastErrors {
  readonly #bySeq = new Map<number, string>();

  of(seq: number): string | undefined {
    return this.#bySeq.get(seq);
  }

  set(seq: number, error: string | undefined): void {
    if (error === undefined) return;
    this.#bySeq.delete(seq);
    this.#bySeq.set(seq, error);
    if (this.#bySeq.size <= ERRORS_MAX) return;
    const [oldest] = this.#bySeq.keys();
    this.#bySeq.delete(oldest!);
  }

  forget(seq: number): void {
    if (this.#bySeq.size > 0) this.#bySeq.delete(seq);
  }
}
