/**
 * Enters the deliveries of a segment that the start could not read into the index, once the disk can read it.
 *
 * Contract: afterwards the index has each delivery of the segment without a settled record, in front of those of its provider
 * that wait, but behind newer ones that were sent meanwhile. Deliveries that a record of the segment settles leave the index. A
 * delivery whose key was accepted again meanwhile is settled, because mailbox takes one for each key. One whose settled record
 * was removed meanwhile enters the index again, and mailbox answers with a duplicate. Rejects if the disk cannot read the
 * segment; the index has not changed then.
 * Bound: one row for each delivery of the segment; a scan of the log behind it. Cancellation: by the signal.
 */
import { touch } from '@ron/kernel';
import type { Damage, Position, RecordHead, SegmentLog } from '@ron/log';
import { formatUlid } from '@ron/proto';
import type { SpoolState, StateRow } from '../state/spool-state.ts';
import { NONE, type RowPlace } from '../state/delivery-table.ts';
import { decodeIndexed, decodeSettled, RECORD } from './delivery-record.ts';
import { damageText, unknownRecord } from './spool-log.ts';

export interface LateReplayInit {
  readonly log: SegmentLog;
  readonly state: SpoolState;
  /** Called for each part of the segment that was read and is damaged. */
  readonly onDamage: (problem: string) => void;
  /** The delivery is not sent: a newer one has its key. */
  readonly settled: (id: Uint8Array) => void;
}

interface LateDelivery {
  readonly row: StateRow;
  readonly place: RowPlace;
}

/** By id. */
type LateDeliveries = Map<string, LateDelivery>;

export class LateReplay {
  readonly #init: LateReplayInit;

  constructor(init: LateReplayInit) {
    this.#init = init;
  }

  /** Returns how many deliveries entered the index; undefined if the key of one is being appended: the caller tries again. */
  async run(segment: number, signal: AbortSignal): Promise<number | undefined> {
    const problems: string[] = [];
    const settled: Buffer[] = [];
    const late = await this.#deliveriesOf(segment, { problems, settled }, signal);
    await this.#removeSettled(late, segment, signal);
    return this.#enter([...late.values()], { problems, settled });
  }

  async #deliveriesOf(segment: number, { problems, settled }: Found, signal: AbortSignal): Promise<LateDeliveries> {
    const { log, state } = this.#init;
    const late: LateDeliveries = new Map();
    const onRecord = (head: RecordHead, position: Position, body: Buffer): void => {
      const { type, payload_bytes, meta_bytes } = head;
      if (type === RECORD.settled) {
        settled.push(Buffer.from(body.subarray(0, payload_bytes)));
        return deleteSettled(late, body.subarray(0, payload_bytes));
      }
      const indexed = type === RECORD.delivery ? decodeIndexed(body.subarray(payload_bytes)) : undefined;
      if (indexed === undefined) problems.push(unknownRecord(position));
      else if (state.table.findId(indexed.id) === NONE) {
        const row = { ...indexed, key: Uint8Array.from(head.id), payload_bytes, meta_bytes };
        late.set(formatUlid(indexed.id), { row, place: { ...position, seq: head.seq } });
      }
    };
    const onDamage = (damage: Damage): void => void problems.push(damageText(damage));
    await log.scanSegment(segment, onRecord, onDamage, signal);
    return late;
  }

  /** Settled records lie behind the deliveries that they name. */
  async #removeSettled(late: LateDeliveries, segment: number, signal: AbortSignal): Promise<void> {
    const { log } = this.#init;
    const onRecord = ({ type, payload_bytes }: RecordHead, _position: Position, body: Buffer): void => {
      if (type === RECORD.settled) deleteSettled(late, body.subarray(0, payload_bytes));
    };
    for (const each of log.files.numbers()) {
      if (each <= segment || late.size === 0) continue;
      await log.scanSegment(each, onRecord, () => undefined, signal, { skipsUnreadable: true });
    }
  }

  /** Deliveries of earlier segments that were settled before the start. */
  #leave(payload: Buffer): void {
    const { state } = this.#init;
    for (const id of decodeSettled(payload)) {
      const slot = state.table.findId(id);
      if (slot !== NONE && !state.isPending(slot)) state.remove(slot);
    }
  }

  /** [interop I-2] One synchronous step. */
  #enter(late: readonly LateDelivery[], found: Found): number | undefined {
    const { state, settled, onDamage } = this.#init;
    touch(state);
    // A pending append may fail, and leave the key to the late delivery.
    const isPending = ({ row }: LateDelivery): boolean => {
      const slot = state.table.findKey(row.key);
      return slot !== NONE && state.isPending(slot);
    };
    if (late.some(isPending)) return undefined;
    for (const payload of found.settled) this.#leave(payload);
    let entered = 0;
    for (const { row, place } of late) {
      if (state.table.findKey(row.key) !== NONE) settled(row.id);
      else {
        state.addReplayed(row, place);
        entered += 1;
      }
    }
    if (entered > 0) state.sort();
    for (const problem of found.problems) onDamage(problem);
    return entered;
  }
}

/** Of the segment. */
interface Found {
  readonly problems: string[];
  /** The payloads of its settled records. */
  readonly settled: Buffer[];
}

function deleteSettled(late: LateDeliveries, payload: Buffer): void {
  for (const id of decodeSettled(payload)) late.delete(formatUlid(id));
}
