/**
 * Chooses the deliveries of a batch: one of each provider in turn, each provider's oldest first.
 *
 * Contract: the provider that was served longest ago comes first, and its first delivery always fits. A provider's delivery is
 * only taken after the one before it, and only once its record is durable. Bound: `messages` and `bytes`, or one delivery.
 */
import { FLAG, NONE, type Slot } from './delivery-table.ts';
import type { ProviderQueue } from './provider-queues.ts';
import type { SpoolState } from './spool-state.ts';

/** A delivery that was taken, and the place of its record. */
export interface Ticket {
  /** Of the delivery, 16 bytes. */
  readonly id: Uint8Array;
  readonly provider: string;
  readonly segment: number;
  readonly offset: number;
  readonly payload_bytes: number;
  readonly meta_bytes: number;
  /** It was in the log at the start: a crash may have prevented its receipt. */
  readonly isReplayed: boolean;
}

export interface TakeLimits {
  readonly messages: number;
  /** Of payloads and meta. */
  readonly bytes: number;
}

interface Cursor {
  readonly queue: ProviderQueue;
  slot: Slot;
  left: number;
}

export function takeFairly(
  state: SpoolState,
  { messages, bytes }: TakeLimits,
  allowance: (provider: string) => number,
): readonly Ticket[] {
  const tickets: Ticket[] = [];
  const served = new Set<ProviderQueue>();
  let cursors = [...state.queues].map((queue) => ({ queue, slot: queue.first, left: allowance(queue.provider) }));
  let left_bytes = bytes;
  const serve = (cursor: Cursor): boolean => {
    const { queue, slot } = cursor;
    if (slot === NONE || cursor.left <= 0 || state.isPending(slot) || tickets.length >= messages) return false;
    const size = state.table.payloadBytes(slot) + state.table.metaBytes(slot);
    if (tickets.length > 0 && size > left_bytes) return false;
    left_bytes -= size;
    tickets.push(ticketOf(state, slot));
    served.add(queue);
    cursor.slot = state.table.nextOf(slot);
    cursor.left -= 1;
    return true;
  };
  while (cursors.length > 0) cursors = cursors.filter(serve);
  for (const queue of served) state.queues.moveToEnd(queue);
  return tickets;
}

/** Of a delivery whose record is durable. */
export function ticketOf({ table, queues }: SpoolState, slot: Slot): Ticket {
  const { segment, offset } = table.placeOf(slot);
  return {
    id: Uint8Array.from(table.idOf(slot)),
    provider: queues.at(table.providerOf(slot)).provider,
    segment,
    offset,
    payload_bytes: table.payloadBytes(slot),
    meta_bytes: table.metaBytes(slot),
    isReplayed: (table.flagsOf(slot) & FLAG.replayed) !== 0,
  };
}
