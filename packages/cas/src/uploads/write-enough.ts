/**
 * Writes the same thing to several places at once and ends when enough have it.
 *
 * Contract: all of `first` are asked at once. A place that fails, or does not answer within `lag_ms`, is replaced by the
 * next of `spare`. It ends when all places that were asked have answered; or when `needed` have it and the rest take longer
 * than `lag_ms` or are known to be slow; or with fewer, but `enough`, under the same conditions.
 * Bound: one write for each place. Cancellation: none; writes end by themselves, those of `late` after it has ended.
 */
import { sched, type Timer } from '@ron/kernel';

export interface WriteEnoughInit<Place> {
  first: readonly Place[];
  /** Asked in place of others, in this order. */
  spare: readonly Place[];
  write: (place: Place) => Promise<void>;
  isSlow: (place: Place) => boolean;
  needed: number;
  /** With so many the caller can go on in another way when the rest are slow. At most `needed`. */
  enough: number;
  lag_ms: number;
}

export interface WrittenTo<Place> {
  readonly good: readonly Place[];
  readonly failures: readonly unknown[];
  /** The writes that have not ended. Their promises never reject. */
  readonly late: ReadonlyMap<Place, Promise<void>>;
}

export function writeEnough<Place>(init: WriteEnoughInit<Place>): Promise<WrittenTo<Place>> {
  return new Run(init).start();
}

class Run<Place> {
  readonly #init: WriteEnoughInit<Place>;
  readonly #good: Place[] = [];
  readonly #failures: unknown[] = [];
  readonly #running = new Map<Place, Promise<void>>();
  readonly #done = sched.park<WrittenTo<Place>>('write_enough');
  readonly #timer: Timer;
  #spares = 0;
  /** Places that are not counted on: they failed, or are slow. */
  #missing = 0;
  #isLate = false;
  #isOver = false;

  constructor(init: WriteEnoughInit<Place>) {
    this.#init = init;
    this.#timer = sched.timer(init.lag_ms, () => this.#endLag(), 'write_enough.lag');
  }

  start(): Promise<WrittenTo<Place>> {
    for (const place of this.#init.first) this.#ask(place);
    this.#settle();
    return this.#done.promise;
  }

  #ask(place: Place): void {
    const write = this.#init.write(place).then(
      () => this.#ended(place, () => this.#good.push(place)),
      (error: unknown) => {
        this.#ended(place, () => this.#failures.push(error));
      },
    );
    this.#running.set(place, write);
  }

  #ended(place: Place, note: () => void): void {
    if (this.#isOver) return;
    this.#running.delete(place);
    const before = this.#failures.length;
    note();
    if (this.#failures.length > before) this.#missing += 1;
    this.#replaceMissing();
    this.#settle();
  }

  #endLag(): void {
    this.#isLate = true;
    this.#missing += this.#running.size;
    this.#replaceMissing();
    this.#settle();
  }

  #replaceMissing(): void {
    const { spare, needed } = this.#init;
    while (this.#missing > 0 && this.#good.length < needed && this.#spares < spare.length) {
      this.#missing -= 1;
      this.#ask(spare[this.#spares++]!);
    }
  }

  #settle(): void {
    const { enough, isSlow } = this.#init;
    const isLeft = this.#isLate || [...this.#running.keys()].every(isSlow);
    if (this.#running.size > 0 && !(isLeft && this.#good.length >= enough)) return;
    this.#timer.cancel();
    this.#isOver = true;
    this.#done.wake({ good: this.#good, failures: this.#failures, late: this.#running });
  }
}
