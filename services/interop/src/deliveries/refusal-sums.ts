/**
 * Sums equal refusals of a flood, so that a forger cannot push other events out of logs and lists.
 *
 * Contract: the first `FULL_PER_S` refusals of a provider and reason in a second are recorded one by one. The others until the
 * next call of `due` after that second become one entry with their number; `due` is called each second. `rest` gives out all.
 * Bound: `SUMS_MAX` pairs, and one for each reason without a provider. Overflow: the refusal is summed for the provider `-`.
 */
import { sched, type Cell } from '@ron/kernel';
import type { RejectReason } from '@ron/proto';

/** Stands for providers that do not exist. */
export const UNKNOWN_PROVIDER = '-';

const FULL_PER_S = 10;
const SUMS_MAX = 4096;
const SECOND_MS = 1000;

export interface RefusalSum {
  readonly provider: string;
  readonly reason: RejectReason | undefined;
  readonly count: number;
}

interface Pair {
  readonly provider: string;
  readonly reason: RejectReason | undefined;
  began_ms: number;
  seen: number;
}

/** By provider and reason. */
export type RefusalCounters = Map<string, Pair>;

export class RefusalSums {
  readonly #cell: Cell<RefusalCounters>;

  constructor(cell: Cell<RefusalCounters>) {
    this.#cell = cell;
  }

  /** Whether the refusal is recorded one by one. */
  admits(provider: string, reason: RejectReason | undefined): boolean {
    const now_ms = sched.now_ms();
    return this.#cell.withSync((pairs) => {
      const known = pairs.get(keyOf(provider, reason));
      const name = known !== undefined || pairs.size < SUMS_MAX ? provider : UNKNOWN_PROVIDER;
      const key = keyOf(name, reason);
      const pair = pairs.get(key) ?? { provider: name, reason, began_ms: now_ms, seen: 0 };
      pairs.set(key, pair);
      pair.seen += 1;
      return pair.seen <= FULL_PER_S;
    });
  }

  /** The sums of the seconds that have ended. */
  due(): RefusalSum[] {
    const until_ms = sched.now_ms() - SECOND_MS;
    return this.#take(({ began_ms }) => began_ms <= until_ms);
  }

  /** All sums, for a stop. */
  rest(): RefusalSum[] {
    return this.#take(() => true);
  }

  #take(isTaken: (pair: Pair) => boolean): RefusalSum[] {
    return this.#cell.withSync((pairs) => {
      const sums: RefusalSum[] = [];
      for (const [key, pair] of pairs) {
        if (!isTaken(pair)) continue;
        pairs.delete(key);
        const { provider, reason, seen } = pair;
        if (seen > FULL_PER_S) sums.push({ provider, reason, count: seen - FULL_PER_S });
      }
      return sums;
    });
  }
}

const keyOf = (provider: string, reason: RejectReason | undefined): string => `${provider}\n${reason ?? ''}`;
