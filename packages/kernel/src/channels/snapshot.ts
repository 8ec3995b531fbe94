/**
 * A value that is replaced as a whole, for many readers and a rare writer.
 *
 * Contract: a reader gets the old value or the new one, never a mixture, and a loaded value does not change. So a value
 * that was given to a snapshot must never be mutated: build a new one and swap it in. A reader that needs two fields of
 * one version loads once. To wait for the next value, use a `Watch`.
 * Bound: one value; older ones live until their readers drop them.
 */
import { touch } from '../sched.ts';

export class Snapshot<S> {
  readonly name: string;
  #current: S;
  #version = 0;

  constructor(name: string, initial: S) {
    this.name = name;
    this.#current = initial;
  }

  load(): S {
    touch(this);
    return this.#current;
  }

  /** Replaces the value for all later loads and returns the one it replaces. */
  swap(next: S): S {
    touch(this);
    // [storage I-1] [kms I-1] [index I-1] [edge I-1] [interop I-1] Readers load and never lock; the value changes in one assignment.
    const previous = this.#current;
    this.#current = next;
    this.#version += 1;
    return previous;
  }

  /** How many swaps there were. */
  get version(): number {
    touch(this);
    return this.#version;
  }
}
