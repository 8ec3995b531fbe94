/**
 * Writes the same data to several places concurrently and resolves when a quorum has it.
 *
 * Contract: writes to all of `first` start at once. A place that fails, or does not answer within `lag_ms`, is replaced by
 * the next of `spare`. The call resolves when every started write has ended, or when `enough` places have the data and the
 * remaining ones exceed `lag_ms` or are known to be slow.
 * Bound: one write for each place. A write cannot be cancelled; those in `late` may still succeed.
 */
import { sched, type Timer } from '@ron/kernel';

export interface QuorumWriteInit<Place> {
  first: readonly Place[];
  /** Replacements, in this order. */
  spare: readonly Place[];
  write: (place: Place) => Promise<void>;
  isSlow: (place: Place) => boolean;
  needed: number;
  /** The quorum when the remaining places are slow. At most `needed`. */
  enough: number;
  lag_ms: number;
}

export interface WrittenTo<Place> {
  readonly good: readonly Place[];
  readonly failures: readonly unknown[];
  /** The writes that have not ended. Their promises never reject. */
  readonly late: ReadonlyMap<Place, Promise<void>>;
}

export function quorumWrite<Place>(init: QuorumWriteInit<Place>): Promise<WrittenTo<Place>> {
  return new Run(init).run();
}

class Run<Place> {
  readonly #init: QuorumWriteInit<Place>;
  readonly #good: Place[] = [];
  readonly #failures: unknown[] = [];
  readonly #running = new Map<Place, Promise<void>>();
  readonly #done = sched.park<WrittenTo<Place>>('write_enough');
  readonly #timer: Timer;
  #spares = 0;
  /** Places that failed or are slow and have no replacement yet. */
  #missing = 0;
  #isLate = false;
  #isOver = false;

  constructor(init: QuorumWriteInit<Place>) {
    this.#init = init;
    this.#timer = sched.timer(init.lag_ms, () => this.#onLag(), 'quorum_write.lag');
  }

  run(): Promise<WrittenTo<Place>> {
    for (const place of this.#init.first) this.#start(place);
    this.#resolveIfDone();
    return this.#done.promise;
  }

  #start(place: Place): void {
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
    this.#resolveIfDone();
  }

  #onLag(): void {
    this.#isLate = true;
    this.#missing += this.#running.size;
    this.#replaceMissing();
    this.#resolveIfDone();
  }

  #replaceMissing(): void {
    const { spare, needed } = this.#init;
    while (this.#missing > 0 && this.#good.length < needed && this.#spares < spare.length) {
      this.#missing -= 1;
      this.#start(spare[this.#spares++]!);
    }
  }

  #resolveIfDone(): void {
    const { enough, isSlow } = this.#init;
    const isLeft = this.#isLate || [...this.#running.keys()].every(isSlow);
    if (this.#running.size > 0 && !(isLeft && this.#good.length >= enough)) return;
    this.#timer.cancel();
    this.#isOver = true;
    this.#done.wake({ good: this.#good, failures: this.#failures, late: this.#running });
  }
}
