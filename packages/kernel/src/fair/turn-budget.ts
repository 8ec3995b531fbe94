/**
 * Limits the work of one turn of the event loop. Requests that arrive together would otherwise be executed in one turn, and
 * everything else would wait for all of them.
 *
 * Contract: a caller gets a turn in the order of arrival. A turn executes at most `units_max` units and the rest of the
 * caller that exceeds them; the others wait for a later turn.
 * Bound: as many waiters as there are callers; queues and admission bound those.
 * Cancellation: an aborted waiter leaves with the signal's reason and uses no units.
 *
 *     const turns = new TurnBudget('mailbox', { units_max: 256 });
 *     await turns.take(messages.length, signal);
 *     encode(messages); // without an await
 */
import { assert } from '../errors.ts';
import { sched, touch } from '../sched.ts';
import { WaitList } from '../sync/wait-list.ts';

export interface TurnBudgetInit {
  units_max: number;
}

export class TurnBudget {
  readonly name: string;
  readonly #units_max: number;
  /** The payload is the units. */
  readonly #waiters: WaitList<void, number>;
  #left: number;
  #isRenewing = false;

  constructor(name: string, { units_max }: TurnBudgetInit) {
    assert(
      Number.isSafeInteger(units_max) && units_max >= 1,
      `turn budget ${name}: units_max is a whole number above 0`,
    );
    this.name = name;
    this.#units_max = units_max;
    this.#left = units_max;
    this.#waiters = new WaitList({ owner: this, label: `${name}.turn` });
  }

  /** Callers that wait for a later turn. */
  get waiters(): number {
    touch(this);
    return this.#waiters.size;
  }

  /** Resolves in a turn that has room. */
  async take(units: number, signal: AbortSignal): Promise<void> {
    touch(this);
    signal.throwIfAborted();
    // While callers wait, nothing is left: a renewal gives all of it to them first.
    if (this.#left <= 0) return await this.#waiters.park(signal, units);
    this.#use(units);
  }

  #use(units: number): void {
    this.#left -= units;
    if (this.#isRenewing) return;
    this.#isRenewing = true;
    // It never rejects.
    void sched.task(`${this.name}.turns`, () => this.#renew());
  }

  async #renew(): Promise<void> {
    await sched.pause(`${this.name}.turns`);
    touch(this);
    this.#isRenewing = false;
    this.#left = this.#units_max;
    while (this.#left > 0 && this.#waiters.size > 0) {
      const units = this.#waiters.peek();
      this.#waiters.wakeFirst();
      this.#use(units);
    }
  }
}
