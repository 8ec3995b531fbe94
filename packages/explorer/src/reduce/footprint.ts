/**
 * Which shared objects a step reads and writes. Steps with disjoint footprints may be swapped without effect.
 *
 * Objects are made anew for each schedule, so they are known by the order in which they were first touched. That order
 * is the same in all schedules with the same beginning, and two steps are only compared where they branch off from one
 * beginning. An object that is first touched in a step has no name that another branch could know: such steps always conflict.
 */

import type { Task } from '../run/step.ts';

/** The objects that one step touched. */
export interface Segment {
  /** It may have touched anything: no kernel object was seen, or its effects cannot be followed. */
  everything: boolean;
  readonly reads: number[];
  readonly writes: number[];
  /** Objects from this number on were unknown when the step began. */
  readonly known: number;
}

const CLOCK = 0;
/** The order of readiness: a pause waits for the steps that were ready before it. */
const ORDER = 1;

/** Records one segment at a time. Code between two segments, such as a check of the model, is not recorded. */
export class Footprint {
  readonly #numbers = new Map<object, number>();
  #named = ORDER + 1;
  #segment: Segment | undefined;
  /** Tasks that ran in this segment, and those of them that announced something. */
  readonly #ran = new Set<Task>();
  readonly #announced = new Set<Task>();
  readonly #task: () => Task;

  constructor(task: () => Task) {
    this.#task = task;
  }

  begin(): void {
    this.#segment = { everything: false, reads: [], writes: [], known: this.#named };
    this.#ran.clear();
    this.#announced.clear();
  }

  end(): Segment {
    const segment = this.#segment as Segment;
    for (const task of this.#ran) segment.everything ||= !task.isFollowed || !this.#announced.has(task);
    this.#segment = undefined;
    return segment;
  }

  /** Code of `task` runs. If it announces nothing, it may touch anything. */
  runs(task: Task): void {
    if (this.#segment !== undefined) this.#ran.add(task);
  }

  /** The kernel reads or writes one of its objects; which of the two it does not say. */
  touches(object: object): void {
    if (this.#segment === undefined) return;
    this.#announced.add(this.#task());
    add(this.#segment.writes, this.#number(object));
  }

  /** A wait begins. No other task can know of it yet. */
  creates(wait: object): void {
    if (this.#segment !== undefined) this.#number(wait);
  }

  /** A wait ends. One that began in this segment is still private to it. */
  settles(wait: object): void {
    if (this.#segment === undefined) return;
    const number = this.#number(wait);
    if (number < this.#segment.known) add(this.#segment.writes, number);
  }

  reads(object: object): void {
    if (this.#segment !== undefined) add(this.#segment.reads, this.#number(object));
  }

  writes(object: object): void {
    if (this.#segment !== undefined) add(this.#segment.writes, this.#number(object));
  }

  readsClock(): void {
    if (this.#segment !== undefined) add(this.#segment.reads, CLOCK);
  }

  writesClock(): void {
    if (this.#segment !== undefined) add(this.#segment.writes, CLOCK);
  }

  makesReady(): void {
    if (this.#segment !== undefined) add(this.#segment.reads, ORDER);
  }

  pauses(): void {
    if (this.#segment !== undefined) add(this.#segment.writes, ORDER);
  }

  touchesEverything(): void {
    if (this.#segment !== undefined) this.#segment.everything = true;
  }

  #number(object: object): number {
    let number = this.#numbers.get(object);
    if (number === undefined) {
      number = this.#named++;
      this.#numbers.set(object, number);
    }
    return number;
  }
}

/** Whether swapping the two could matter. `earlier` was recorded no later than where `later` branches off. */
export function conflicts(earlier: Segment, later: Segment): boolean {
  if (earlier.everything || later.everything) return true;
  const { known } = earlier;
  return (
    overlaps(earlier.writes, later.writes, known) ||
    overlaps(earlier.writes, later.reads, known) ||
    overlaps(earlier.reads, later.writes, known)
  );
}

/** Whether some object may be in both. Those that were not `known` may be any. */
function overlaps(some: readonly number[], others: readonly number[], known: number): boolean {
  if (some.some((object) => object < known && others.includes(object))) return true;
  return some.some((object) => object >= known) && others.some((object) => object >= known);
}

/** A step that was tried with several outcomes touches the objects of all of them. */
export function merge(first: Segment | undefined, second: Segment): Segment {
  if (first === undefined) return second;
  for (const object of second.reads) add(first.reads, object);
  for (const object of second.writes) add(first.writes, object);
  first.everything ||= second.everything;
  return first;
}

function add(objects: number[], object: number): void {
  if (!objects.includes(object)) objects.push(object);
}
