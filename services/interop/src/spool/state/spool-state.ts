/**
 * The index of the spool in memory: rows, the order of each provider, and the live bytes of each segment.
 *
 * Contract: every method is one synchronous step. A row that is pending has no place in the log yet. Bound: the caller bounds
 * the rows; one count for each segment with live records.
 */
import { assert, touch } from '@ron/kernel';
import { recordBytes } from '@ron/log';
import { DeliveryTable, FLAG, NONE, type RowPlace, type Slot } from './delivery-table.ts';
import { ProviderQueues } from './provider-queues.ts';

export interface StateRow {
  readonly key: Uint8Array;
  readonly id: Uint8Array;
  readonly provider: string;
  readonly received_ms: number;
  readonly payload_bytes: number;
  readonly meta_bytes: number;
}

export class SpoolState {
  readonly table: DeliveryTable;
  readonly queues: ProviderQueues;
  /** Live records of each segment. */
  readonly #live = new Map<number, number>();
  #live_bytes = 0;
  #pending_bytes = 0;

  constructor(rows_max: number, page_bits?: number) {
    this.table = new DeliveryTable(rows_max, page_bits);
    this.queues = new ProviderQueues(this.table);
  }

  /** Of records in the log whose deliveries wait. */
  get live_bytes(): number {
    return this.#live_bytes;
  }

  /** Of records that are being written. */
  get pending_bytes(): number {
    return this.#pending_bytes;
  }

  liveIn(segment: number): number {
    return this.#live.get(segment) ?? 0;
  }

  /** Adds a row whose record is being written; `NONE` if there are too many providers. */
  addPending(row: StateRow): Slot {
    return this.#add(row, FLAG.pending);
  }

  /** The record of a pending row is durable. */
  place(slot: Slot, place: RowPlace): void {
    touch(this);
    this.#pending_bytes -= this.bytesOf(slot);
    this.table.setFlags(slot, this.table.flagsOf(slot) & ~FLAG.pending);
    this.#enter(slot, place);
  }

  /** A record that a start read. */
  addReplayed(row: StateRow, place: RowPlace): void {
    const slot = this.#add(row, FLAG.replayed);
    assert(slot !== NONE, 'the log has no more providers than the index');
    this.#enter(slot, place);
  }

  /** The record was copied; the row lies at the copy from now on. */
  move(slot: Slot, place: RowPlace): void {
    touch(this);
    this.#leave(slot);
    this.#enter(slot, place);
  }

  /** Orders the deliveries of each provider by the numbers of their records, after older ones were added. */
  sort(): void {
    touch(this);
    for (const queue of this.queues) this.queues.sort(queue);
  }

  remove(slot: Slot): void {
    touch(this);
    const queue = this.queues.at(this.table.providerOf(slot));
    const bytes = this.bytesOf(slot);
    if (this.isPending(slot)) this.#pending_bytes -= bytes;
    else this.#leave(slot);
    this.queues.remove(queue, slot, bytes);
    this.table.remove(slot);
  }

  isPending(slot: Slot): boolean {
    return (this.table.flagsOf(slot) & FLAG.pending) !== 0;
  }

  /** The length of the row's record. */
  bytesOf(slot: Slot): number {
    return recordBytes(this.table.payloadBytes(slot), this.table.metaBytes(slot));
  }

  /** When the oldest delivery was received; undefined if there is none. */
  get oldest_ms(): number | undefined {
    let oldest_ms: number | undefined;
    for (const { first } of this.queues) {
      const received_ms = this.table.receivedMs(first);
      if (oldest_ms === undefined || received_ms < oldest_ms) oldest_ms = received_ms;
    }
    return oldest_ms;
  }

  #add({ provider, ...row }: StateRow, flags: number): Slot {
    touch(this);
    const queue = this.queues.of(provider);
    if (queue === undefined) return NONE;
    const slot = this.table.add({ ...row, provider: queue.index, flags });
    const bytes = this.bytesOf(slot);
    this.queues.push(queue, slot, bytes);
    if ((flags & FLAG.pending) !== 0) this.#pending_bytes += bytes;
    return slot;
  }

  #enter(slot: Slot, place: RowPlace): void {
    this.table.setPlace(slot, place);
    this.#live.set(place.segment, this.liveIn(place.segment) + 1);
    this.#live_bytes += this.bytesOf(slot);
  }

  #leave(slot: Slot): void {
    const { segment } = this.table.placeOf(slot);
    const left = this.liveIn(segment) - 1;
    if (left === 0) this.#live.delete(segment);
    else this.#live.set(segment, left);
    this.#live_bytes -= this.bytesOf(slot);
  }
}
