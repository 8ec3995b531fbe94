/**
 * The spool: verified webhooks on disk while mailbox is away, in the order of each provider.
 *
 *     append --> log (synced) --> take, read --> mailbox --> settle --> settled record, space given back
 *
 * Contract: `append` resolves once the delivery is durable; it is then kept until it is settled. An idempotency key is stored
 * once: further appends get the first id, and wait for the same sync. `holds` is true from the beginning of an append until the
 * delivery is settled, so newer deliveries of the provider never overtake it. A settled delivery is not taken again; after a
 * crash it may be, and mailbox answers with a duplicate. A record that is damaged is reported, counted and dropped. A segment
 * that the disk cannot read at the start is kept, and its deliveries are taken once it can (late-replay.ts): behind newer ones
 * that were sent meanwhile.
 * Bound: spool-limits.ts; a provider gets half of the room and half of the deliveries. Overflow: `full`. A full disk is
 * `storage_full`, any other failure `not_ready`; the delivery was not stored then. In memory: one row for each delivery
 * (delivery-table.ts), the ids of `SettledIds`; payloads stay on the disk. Amnesia has no spool: always `full`.
 * Cancellation: an append whose signal aborts rejects. If its record is being written by then, the delivery is stored, and a
 * later append of its key is a duplicate.
 *
 * The drainer (spool-drainer.ts) takes and maintains. It settles, and so does `delivered`, which the sender calls: each in one
 * synchronous step.
 */
import { NEVER, Notify, touch } from '@ron/kernel';
import type { Appended, DurableRecord, FileSystem, SegmentLog } from '@ron/log';
import { formatUlid, isUlid, ulidBytes, type WebhookReceipt } from '@ron/proto';
import type { LogExtent } from '../log-extent.ts';
import { decodeDelivery, keyBytes, type SpooledDelivery } from './store/delivery-record.ts';
import { FLAG, NONE, type Slot } from './state/delivery-table.ts';
import { PendingAppend, SpoolAppends, type AppendResult } from './spool-appends.ts';
import { SpoolCondition, type SpoolEvent } from './spool-condition.ts';
import { spoolLimits, type SpoolLimits, type SpoolLimitsInit } from './store/spool-limits.ts';
import { openSpoolLog } from './store/spool-log.ts';
import { Move } from './store/spool-reclaimer.ts';
import { SpoolMaintenance } from './spool-maintenance.ts';
import { SpoolRoom } from './spool-room.ts';
import { SpoolState } from './state/spool-state.ts';
import { UnreadSegments } from '../unread-segments.ts';
import { takeFairly, ticketOf, type TakeLimits, type Ticket } from './state/take-fairly.ts';

export type { SpooledDelivery } from './store/delivery-record.ts';

export type { SpoolEvent } from './spool-condition.ts';
export type { Ticket } from './state/take-fairly.ts';

export interface SpoolInit extends SpoolLimitsInit {
  /** Undefined in amnesia: nothing is spooled. */
  readonly dir: string | undefined;
  readonly fs?: FileSystem;
  /** Follows the log. Default: none is kept. */
  readonly extent?: LogExtent | undefined;
  readonly onEvent: (event: SpoolEvent) => void;
  /** Models use smaller pages. */
  readonly page_bits?: number;
  /** Ends the replay. */
  readonly signal: AbortSignal;
}

export class Spool implements AsyncDisposable {
  /** Notified when there may be something to send or to settle. */
  readonly changed = new Notify('spool.changed');
  readonly #init: SpoolInit;
  readonly #limits: SpoolLimits;
  readonly #state: SpoolState;
  readonly #room: SpoolRoom;
  readonly #appends: SpoolAppends;
  readonly #condition: SpoolCondition;
  readonly #unread = new UnreadSegments();
  #log: SegmentLog | undefined;
  #maintenance: SpoolMaintenance | undefined;

  private constructor(init: SpoolInit) {
    this.#init = init;
    this.#limits = spoolLimits(init);
    this.#condition = new SpoolCondition(init.onEvent);
    this.#state = new SpoolState(init.deliveries_max, init.page_bits);
    this.#room = new SpoolRoom(this.#limits, this.#state, () => this.bytes);
    this.#appends = new SpoolAppends({
      state: this.#state,
      room: this.#room,
      condition: this.#condition,
      settle: (slot) => this.#settle(slot),
      onChange: () => this.changed.notifyOne(),
      onBegan: (provider) => init.onEvent({ kind: 'spool began', provider }),
    });
  }

  /** Replays the log. Rejects with `not_ready` if the disk fails. */
  static async open(init: SpoolInit): Promise<Spool> {
    const spool = new Spool(init);
    await spool.#open(init);
    return spool;
  }

  async #open({ dir, fs, extent, signal }: SpoolInit): Promise<void> {
    if (dir === undefined) return;
    const [state, limits, unread] = [this.#state, this.#limits, this.#unread];
    const onDurable = (records: readonly DurableRecord[], places: readonly Appended[]): void => {
      for (const [index, { context }] of records.entries()) this.#onDurable(context, places[index]!);
    };
    const onDamage = (problem: string): void => this.#condition.damaged(problem);
    const log = await openSpoolLog({ dir, fs, extent, limits, state, unread, onDurable, onDamage, signal });
    const drop = (slot: Slot): void => this.#drop(slot);
    this.#log = log;
    const [room, condition] = [this.#room, this.#condition];
    const onRead = (segment: number, deliveries: number): void =>
      this.#init.onEvent({ kind: 'spool part read', segment, deliveries });
    const onUnread = (): void => this.#init.onEvent({ kind: 'spool part unreadable', problem: unread.problem! });
    this.#maintenance = new SpoolMaintenance({ log, state, limits, unread, room, condition, drop, onRead, onUnread });
    if (unread.problem !== undefined) onUnread();
    // A read-only disk: its deliveries are still sent.
    if (log.refusal !== undefined) this.#condition.failed(log.refusal);
  }

  /** Bytes of the log on disk. */
  get bytes(): number {
    return this.#log?.files.totals().bytes ?? 0;
  }

  /** Deliveries that wait. */
  get count(): number {
    return this.#state.table.size;
  }

  /** When the oldest delivery that waits was received; undefined if none waits. */
  get oldest_ms(): number | undefined {
    return this.#state.oldest_ms;
  }

  /** Damaged parts of the log, and deliveries whose record was damaged, since the start. */
  get damaged_total(): number {
    return this.#condition.damaged_total;
  }

  /** Whether `maintain` or `removeSettled` may have work although nothing waits. */
  get needsMaintenance(): boolean {
    return this.bytes > 0 || this.isFailing;
  }

  /** The last write failed, or a segment is unread: `maintain` tries again. */
  get isFailing(): boolean {
    return this.#condition.failure !== undefined || this.#unread.size > 0;
  }

  /** Segments that the disk could not read yet. */
  get unread_segments(): number {
    return this.#unread.size;
  }

  /** Why deliveries cannot be spooled now or soon, or are not drained; undefined without a problem. Not set in amnesia. */
  get problem(): string | undefined {
    const unread = this.#unread.problem;
    const waiting = unread && `${unread} of the spool: its webhooks wait`;
    return this.#condition.failure ?? waiting ?? (this.#log && this.#room.problem);
  }

  /** Whether deliveries of the provider wait, so that newer ones go behind them. */
  holds(provider: string): boolean {
    touch(this);
    return this.#state.queues.get(provider) !== undefined;
  }

  /** The id of the delivery with this key, if it is in the spool. */
  idOf(idempotency_key: string): string | undefined {
    touch(this);
    const slot = this.#state.table.findKey(keyBytes(idempotency_key));
    return slot === NONE ? undefined : this.#idOf(slot);
  }

  /** Resolves when the delivery is durable. A key that is in the spool gets the first id. */
  async append(delivery: SpooledDelivery, signal: AbortSignal): Promise<AppendResult> {
    return this.#log === undefined ? 'full' : await this.#appends.append(this.#log, delivery, signal);
  }

  /** The delivery is in mailbox: it is not sent again. */
  delivered(id: string): void {
    touch(this);
    if (!isUlid(id)) return;
    const { table } = this.#state;
    const slot = table.findId(ulidBytes(id));
    if (slot === NONE) return;
    if (this.#state.isPending(slot)) table.setFlags(slot, table.flagsOf(slot) | FLAG.delivered);
    else this.#settle(slot);
    this.changed.notifyOne();
  }

  /**
   * The next deliveries, fairly over the providers, each provider's in order. `allowance` is how many of a provider's may be
   * taken. They stay in the spool until they are settled.
   */
  take(limits: TakeLimits, allowance: (provider: string) => number): readonly Ticket[] {
    touch(this);
    return takeFairly(this.#state, limits, allowance);
  }

  /** The delivery, verified; undefined if its record is damaged. Rejects if the disk cannot be read. */
  async read({ segment, offset, payload_bytes, meta_bytes }: Ticket): Promise<SpooledDelivery | undefined> {
    const record = await this.#log?.read({ segment, offset }, payload_bytes, meta_bytes);
    return record && decodeDelivery(record);
  }

  /** The receipt of a delivery, from its record; undefined if it does not wait any more, or its record is damaged. */
  async receiptOf(id: string): Promise<WebhookReceipt | undefined> {
    touch(this);
    const slot = isUlid(id) ? this.#state.table.findId(ulidBytes(id)) : NONE;
    if (slot === NONE || this.#state.isPending(slot)) return undefined;
    return (await this.read(ticketOf(this.#state, slot)))?.receipt;
  }

  /** They are in mailbox: they are not taken again. */
  settle(tickets: readonly Ticket[]): void {
    touch(this);
    for (const { id } of tickets) {
      const slot = this.#state.table.findId(id);
      if (slot !== NONE) this.#settle(slot);
    }
  }

  /** The record of a delivery is damaged: it is reported and dropped. */
  drop({ id }: Ticket): void {
    touch(this);
    const slot = this.#state.table.findId(id);
    if (slot !== NONE) this.#drop(slot);
  }

  /** Whether the delivery of a ticket still waits. */
  has({ id }: Ticket): boolean {
    touch(this);
    return this.#state.table.findId(id) !== NONE;
  }

  /** Writes settled records and gives back space, one segment at most. After a failure it probes the disk. */
  async maintain(signal: AbortSignal): Promise<void> {
    await this.#maintenance?.run(signal);
  }

  /** Removes the bodies of settled deliveries from the disk if nothing waits. */
  async removeSettled(signal: AbortSignal): Promise<void> {
    if (this.bytes > 0) await this.#maintenance?.removeAll(signal);
  }

  /** Writes the settled ids, syncs and closes the log. */
  async close(): Promise<void> {
    // A failed write means that some deliveries are sent again, as duplicates.
    await this.#maintenance?.writeSettled(NEVER).catch((error: unknown) => void this.#condition.failed(error));
    await this.#log?.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #onDurable(context: unknown, place: Appended): void {
    if (context instanceof PendingAppend) this.#appends.onDurable(context, place);
    else if (context instanceof Move) this.#maintenance!.moved(context, place);
  }

  #settle(slot: Slot): void {
    this.#maintenance!.settled(this.#state.table.idOf(slot));
    this.#remove(slot);
  }

  #drop(slot: Slot): void {
    const provider = this.#state.queues.at(this.#state.table.providerOf(slot)).provider;
    this.#condition.damaged(`the record of the delivery ${this.#idOf(slot)} of ${provider} is damaged`);
    this.#settle(slot);
  }

  #remove(slot: Slot): void {
    this.#state.remove(slot);
    if (this.count === 0) this.#init.onEvent({ kind: 'spool emptied' });
  }

  #idOf(slot: Slot): string {
    return formatUlid(this.#state.table.idOf(slot));
  }
}
