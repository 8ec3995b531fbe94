/**
 * Mutable state that is accessed only in synchronous sections: the lock of this code base.
 *
 * Contract: no other code runs during a section, because a section cannot await. The types refuse a callback that returns
 * a promise or may return one; `withSync` throws for a thenable that the types missed. Cells nest only in ascending rank,
 * and a cell cannot be entered twice. Both are checked on every call, in production too.
 * Bound: held for one synchronous call.
 *
 * A callback that throws releases the cell and keeps the changes made so far: check first, then change.
 *
 *     const counters = runtime.cell('io_counters', { reads: 0 });
 *     counters.withSync((state) => (state.reads += 1));
 */
import { assert, RonError } from '../errors.ts';
import { touch } from '../sched.ts';

/** A type that no callback has: intersecting an async callback with it fails, and the compiler prints its name. */
declare const REFUSED: unique symbol;
export interface CallbackMustNotBeAsync {
  readonly [REFUSED]: 'no lock is held across an await: copy the values out of the cell, then await';
}

/** No demand on a callback with result `R`, unless a part of `R` is thenable. `any` could hide one and is refused too. */
export type Synchronous<R> = [Extract<R, PromiseLike<unknown>>] extends [never] ? unknown : CallbackMustNotBeAsync;

interface Held {
  readonly name: string;
  readonly rank: number;
}

/** The cells held now, outermost first. Callbacks are synchronous, so it is empty between any two tasks. */
const held: Held[] = [];

export class Cell<S> {
  readonly name: string;
  readonly rank: number;
  readonly #state: S;

  /** `rank` is the place in the lock hierarchy: a cell can be taken while cells of lower rank are held. */
  constructor(name: string, rank: number, initial: S) {
    assert(Number.isFinite(rank), `cell ${name}: rank is a number`);
    this.name = name;
    this.rank = rank;
    this.#state = initial;
  }

  /** Runs `use` on the state and returns its result. */
  withSync<R>(use: ((state: S) => R) & Synchronous<R>): R {
    touch(this);
    const outer = held.at(-1);
    if (outer !== undefined && outer.rank >= this.rank) throw orderError(this, outer);
    held.push(this);
    try {
      const result: R = use(this.#state);
      // [storage I-1] [kms I-1] [index I-1] [edge I-1] [interop I-1] A callback that waits is refused, even if its type hid the promise.
      if (isThenable(result)) throw asyncError(this.name, result);
      return result;
    } finally {
      held.pop();
    }
  }
}

function orderError(cell: Held, outer: Held): RonError {
  const what = held.includes(cell)
    ? `cell ${cell.name} is entered while it is held`
    : `cell ${cell.name} (rank ${cell.rank}) is taken while ${outer.name} (rank ${outer.rank}) is held; ranks must ascend`;
  return new RonError('internal', `assertion failed: ${what}`);
}

function asyncError(name: string, result: PromiseLike<unknown>): RonError {
  // We report the mistake here; a rejection of the abandoned promise would only add noise to it.
  if (result instanceof Promise) result.catch(() => {});
  return new RonError('internal', `assertion failed: the callback of cell ${name} returned a promise`);
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  if (value === null || (typeof value !== 'object' && typeof value !== 'function')) return false;
  return typeof (value as { then?: unknown }).then === 'function';
}
