/**
 * The upkeep of the spool's log: settled records, space, segments that the start could not read, and probes of a disk that failed.
 *
 * Contract: a failure is noted in the condition and rejects; the next run tries again. Bound: one run at a time, by the drainer.
 * Cancellation: by the signal of each run; ids that were not written are written by the next.
 */
import { recordBytes, type Appended, type SegmentLog } from '@ron/log';
import type { SpoolCondition } from './spool-condition.ts';
import type { SpoolRoom } from './spool-room.ts';
import { encodeSettled } from './store/delivery-record.ts';
import { SettledIds } from './store/settled-ids.ts';
import { LateReplay } from './store/late-replay.ts';
import { SpoolReclaimer, type Move, type SpoolReclaimerInit } from './store/spool-reclaimer.ts';
import type { UnreadSegments } from '../unread-segments.ts';

export interface SpoolMaintenanceInit extends SpoolReclaimerInit {
  readonly room: SpoolRoom;
  readonly condition: SpoolCondition;
  readonly unread: UnreadSegments;
  /** An unread segment was read, and so many of its deliveries wait. */
  readonly onRead: (segment: number, deliveries: number) => void;
}

const NO_IDS = new Uint8Array(0);
/** The record that probes the disk. */
const PROBE_BYTES = recordBytes(0, 0);

export class SpoolMaintenance {
  readonly #log: SegmentLog;
  readonly #room: SpoolRoom;
  readonly #condition: SpoolCondition;
  readonly #reclaimer: SpoolReclaimer;
  readonly #settled = new SettledIds();
  readonly #unread: UnreadSegments;
  readonly #late: LateReplay;
  readonly #onRead: SpoolMaintenanceInit['onRead'];

  constructor(init: SpoolMaintenanceInit) {
    this.#log = init.log;
    this.#room = init.room;
    this.#condition = init.condition;
    this.#reclaimer = new SpoolReclaimer(init);
    const { log, state, condition, unread, onRead } = init;
    this.#unread = unread;
    this.#onRead = onRead;
    const onDamage = (problem: string): void => condition.damaged(problem);
    this.#late = new LateReplay({ log, state, onDamage, settled: (id) => this.settled(id) });
  }

  /** A delivery is in mailbox. The next run writes it. */
  settled(id: Uint8Array): void {
    this.#settled.add(id);
  }

  /** A copy of the reclaimer is durable. */
  moved(move: Move, place: Appended): void {
    this.#reclaimer.moved(move, place);
  }

  /** Writes settled records and gives back space, one segment at most. After a failure it probes the disk. */
  async run(signal: AbortSignal): Promise<void> {
    if (this.#unread.wait_ms <= 0) await this.#readLate(signal);
    const reclaimer = this.#reclaimer;
    const isIdle = this.#settled.size === 0 && !reclaimer.isDue;
    const isFailing = this.#condition.failure !== undefined;
    if (isIdle && (!isFailing || !this.#room.hasForSettled(PROBE_BYTES))) return;
    await this.#onDisk(async () => {
      if (isIdle) await this.#log.append([encodeSettled(NO_IDS)], signal);
      await this.writeSettled(signal);
      if (reclaimer.isDue) await reclaimer.removeOldest(signal);
    });
  }

  /** Removes the bodies of settled deliveries if nothing waits. */
  async removeAll(signal: AbortSignal): Promise<void> {
    await this.#onDisk(() => this.#reclaimer.removeAll(signal));
  }

  async #readLate(signal: AbortSignal): Promise<void> {
    // Deliveries that are settled in memory only would enter the index again.
    try {
      await this.writeSettled(signal);
    } catch {
      return;
    }
    const read = async (segment: number): Promise<boolean> => {
      const deliveries = await this.#late.run(segment, signal);
      if (deliveries !== undefined) this.#onRead(segment, deliveries);
      return deliveries !== undefined;
    };
    await this.#unread.tryAll(read, signal);
  }

  async writeSettled(signal: AbortSignal): Promise<void> {
    await this.#settled.write(this.#log, (bytes) => this.#room.hasForSettled(bytes), signal);
  }

  async #onDisk(work: () => Promise<void>): Promise<void> {
    try {
      await work();
      this.#condition.succeeded();
    } catch (error) {
      throw this.#condition.failed(error);
    }
  }
}
