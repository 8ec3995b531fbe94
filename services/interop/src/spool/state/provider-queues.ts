/**
 * The deliveries of each provider, oldest first, as lists through the table.
 *
 * Contract: a provider has a queue while it has deliveries. `[Symbol.iterator]` begins with the provider that was served
 * longest ago.
 * Bound: one queue for each provider with deliveries, `PROVIDERS_MAX` in all; `of` returns undefined beyond it.
 */
import type { DeliveryTable, Slot } from './delivery-table.ts';
import { NONE } from './delivery-table.ts';

/** The table has two bytes for a provider. */
const PROVIDERS_MAX = 65_535;

export interface ProviderQueue {
  readonly provider: string;
  readonly index: number;
  first: Slot;
  last: Slot;
  count: number;
  /** Of the records. */
  bytes: number;
}

export class ProviderQueues {
  readonly #table: DeliveryTable;
  readonly #queues = new Map<string, ProviderQueue>();
  readonly #byIndex: (ProviderQueue | undefined)[] = [];
  readonly #free: number[] = [];

  constructor(table: DeliveryTable) {
    this.#table = table;
  }

  [Symbol.iterator](): IterableIterator<ProviderQueue> {
    return this.#queues.values();
  }

  get(provider: string): ProviderQueue | undefined {
    return this.#queues.get(provider);
  }

  at(index: number): ProviderQueue {
    return this.#byIndex[index]!;
  }

  /** The queue of a provider, a new one if it has none. */
  of(provider: string): ProviderQueue | undefined {
    const known = this.#queues.get(provider);
    if (known !== undefined) return known;
    if (this.#queues.size >= PROVIDERS_MAX) return undefined;
    const index = this.#free.pop() ?? this.#byIndex.length;
    const queue: ProviderQueue = { provider, index, first: NONE, last: NONE, count: 0, bytes: 0 };
    this.#byIndex[index] = queue;
    this.#queues.set(provider, queue);
    return queue;
  }

  push(queue: ProviderQueue, slot: Slot, bytes: number): void {
    const { last } = queue;
    this.#table.setPrevious(slot, last);
    this.#table.setNext(slot, NONE);
    if (last === NONE) queue.first = slot;
    else this.#table.setNext(last, slot);
    queue.last = slot;
    queue.count += 1;
    queue.bytes += bytes;
  }

  remove(queue: ProviderQueue, slot: Slot, bytes: number): void {
    const previous = this.#table.previousOf(slot);
    const next = this.#table.nextOf(slot);
    if (previous === NONE) queue.first = next;
    else this.#table.setNext(previous, next);
    if (next === NONE) queue.last = previous;
    else this.#table.setPrevious(next, previous);
    queue.count -= 1;
    queue.bytes -= bytes;
    if (queue.count > 0) return;
    this.#queues.delete(queue.provider);
    this.#byIndex[queue.index] = undefined;
    this.#free.push(queue.index);
  }

  /** The provider was served: the others come first. */
  moveToEnd(queue: ProviderQueue): void {
    this.#queues.delete(queue.provider);
    this.#queues.set(queue.provider, queue);
  }

  /** Links the queue anew in the order of the log's numbers. Rows that are being written have none yet, and stay behind. */
  sort(queue: ProviderQueue): void {
    const slots: { readonly slot: Slot; readonly seq: number }[] = [];
    for (let slot = queue.first; slot !== NONE; slot = this.#table.nextOf(slot))
      slots.push({ slot, seq: this.#table.placeOf(slot).seq || Number.MAX_SAFE_INTEGER });
    slots.sort((a, b) => a.seq - b.seq);
    queue.first = NONE;
    queue.last = NONE;
    queue.count = 0;
    const { bytes } = queue;
    for (const { slot } of slots) this.push(queue, slot, 0);
    queue.bytes = bytes;
  }
}
