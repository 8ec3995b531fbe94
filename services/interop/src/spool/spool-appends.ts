/**
 * The appends of deliveries that are being written.
 *
 * Contract: an append resolves once its delivery is durable; its row is in the index from the beginning. An append of a key that
 * is being written waits for that sync, and stores its own delivery if it failed. An append that rejects leaves no row.
 * Bound: the caller bounds the appends. Overflow: `full`, if there is no room (spool-room.ts).
 * Cancellation: an append whose signal aborts rejects at once. If its record is being written by then, the write goes on and
 * keeps the row: the delivery is stored, and a later append of its key is a duplicate.
 */
import { orAborted, touch } from '@ron/kernel';
import { recordBytes, type Appended, type RecordInput, type SegmentLog } from '@ron/log';
import { formatUlid, ulidBytes } from '@ron/proto';
import { encodeDelivery, keyBytes, type SpooledDelivery } from './store/delivery-record.ts';
import { FLAG, NONE, type Slot } from './state/delivery-table.ts';
import type { SpoolCondition } from './spool-condition.ts';
import type { SpoolRoom } from './spool-room.ts';
import type { SpoolState } from './state/spool-state.ts';

export type AppendResult = 'full' | { readonly id: string; readonly duplicate: boolean };

/** A delivery whose record is being written: the context of the record. */
export class PendingAppend {
  readonly slot: Slot;
  isDurable = false;
  /** Resolves when the append has ended, with whether it is durable. */
  ended: Promise<boolean> = Promise.resolve(false);

  constructor(slot: Slot) {
    this.slot = slot;
  }
}

export interface SpoolAppendsInit {
  readonly state: SpoolState;
  readonly room: SpoolRoom;
  readonly condition: SpoolCondition;
  /** The delivery is in mailbox by now. */
  readonly settle: (slot: Slot) => void;
  /** A row became durable, or was removed because its write failed. */
  readonly onChange: () => void;
  /** The first delivery of a provider. */
  readonly onBegan: (provider: string) => void;
}

export class SpoolAppends {
  readonly #init: SpoolAppendsInit;
  readonly #pending = new Map<Slot, PendingAppend>();

  constructor(init: SpoolAppendsInit) {
    this.#init = init;
  }

  async append(log: SegmentLog, delivery: SpooledDelivery, signal: AbortSignal): Promise<AppendResult> {
    const { table } = this.#init.state;
    const key = keyBytes(delivery.idempotency_key);
    for (;;) {
      touch(this.#init.state);
      signal.throwIfAborted();
      const known = table.findKey(key);
      if (known === NONE) return await this.#appendNew(log, delivery, key, signal);
      const id = formatUlid(table.idOf(known));
      const pending = this.#pending.get(known);
      if (pending === undefined || (await orAborted(pending.ended, signal))) return { id, duplicate: true };
    }
  }

  /** In the step of the sync: a segment never looks empty while it has a delivery that waits. */
  onDurable(pending: PendingAppend, place: Appended): void {
    const { state, settle, onChange } = this.#init;
    const { slot } = pending;
    pending.isDurable = true;
    this.#pending.delete(slot);
    state.place(slot, place);
    // A late call to mailbox succeeded meanwhile.
    if ((state.table.flagsOf(slot) & FLAG.delivered) !== 0) settle(slot);
    onChange();
  }

  async #appendNew(
    log: SegmentLog,
    delivery: SpooledDelivery,
    key: Uint8Array,
    signal: AbortSignal,
  ): Promise<AppendResult> {
    const { state, room, onBegan } = this.#init;
    const record = encodeDelivery(delivery);
    const meta_bytes = record.meta!.length;
    const payload_bytes = record.payload.length;
    const { provider, received_ms } = delivery;
    if (!room.hasFor(provider, recordBytes(payload_bytes, meta_bytes))) return 'full';
    const isFirst = state.queues.get(provider) === undefined;
    const id = ulidBytes(delivery.id);
    const slot = state.addPending({ key, id, provider, received_ms, payload_bytes, meta_bytes });
    if (slot === NONE) return 'full';
    const pending = new PendingAppend(slot);
    this.#pending.set(slot, pending);
    const write = this.#write(log, record, pending, signal);
    pending.ended = write.then(
      () => {
        if (isFirst) onBegan(provider);
        return true;
      },
      () => false,
    );
    await orAborted(write, signal);
    return { id: delivery.id, duplicate: false };
  }

  async #write(log: SegmentLog, record: RecordInput, pending: PendingAppend, signal: AbortSignal): Promise<void> {
    const { state, condition, onChange } = this.#init;
    try {
      await log.append([{ ...record, context: pending }], signal);
      condition.succeeded();
    } catch (error) {
      // It may be durable although a later part of its batch failed.
      if (pending.isDurable) return;
      this.#pending.delete(pending.slot);
      state.remove(pending.slot);
      onChange();
      throw condition.failed(error);
    }
  }
}
