/**
 * Finds records that are missing, by their numbers.
 *
 * Records are numbered without gaps, moved messages aside. A failed sync loses numbers that were never acknowledged; the
 * segment after it states so in its `base`. A power failure may lose any of the records that no sync covered while later ones
 * survive. Each record therefore carries a mark: all records up to that number were durable when it was appended. The end mark
 * (end-mark.ts) states the same for the last records. A missing number above every mark counts as never acknowledged.
 *
 * Bound: `RANGES_MAX` ranges; later ones extend the last range.
 */

const RANGES_MAX = 1024;

export interface MissingRange {
  readonly from: number;
  to: number;
}

export const rangeText = ({ from, to }: MissingRange): string =>
  from === to ? `record ${from} is missing` : `records ${from} to ${to} are missing`;

export class Sequence {
  /** The number of the last record; undefined before the first. */
  last: number | undefined;
  /** All records up to this number are known to have been durable. */
  mark = 0;
  readonly #missing: MissingRange[] = [];

  /** Returns false if the number was used before. */
  next(seq: number, mark: number): boolean {
    if (mark > this.mark) this.mark = mark;
    const { last } = this;
    if (last !== undefined && seq <= last) return false;
    if (last !== undefined && seq > last + 1) this.#miss(last + 1, seq - 1);
    this.last = seq;
    return true;
  }

  /** The first record of a segment. Numbers between the one before and its own were never durable. */
  base(seq: number, seq_before: number): boolean {
    if (seq_before > this.mark) this.mark = seq_before;
    const { last } = this;
    this.last = seq;
    if (last === undefined) return true;
    if (seq_before > last) this.#miss(last + 1, seq_before);
    return seq_before >= last && seq > seq_before;
  }

  moved(mark: number): void {
    if (mark > this.mark) this.mark = mark;
  }

  /** The end of the log: all records up to `seq` were durable. Called once. */
  end(seq: number): void {
    if (seq > this.mark) this.mark = seq;
    const last = this.last ?? 0;
    if (seq > last) this.#miss(last + 1, seq);
  }

  /** Missing records that were durable, and those that may never have been. */
  missing(): { readonly durable: readonly MissingRange[]; readonly unsynced: readonly MissingRange[] } {
    const isDurable = ({ from }: MissingRange): boolean => from <= this.mark;
    return { durable: this.#missing.filter(isDurable), unsynced: this.#missing.filter((range) => !isDurable(range)) };
  }

  #miss(from: number, to: number): void {
    if (this.#missing.length < RANGES_MAX) this.#missing.push({ from, to });
    else this.#missing.at(-1)!.to = to;
  }
}
