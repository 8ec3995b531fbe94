/**
 * Records the outcome of each webhook: in the counters, the list of recent deliveries, the live events and the audit channel.
 *
 * Contract: never waits and never fails. Floods of equal refusals are summed (`refusal-sums.ts`), except in the counters.
 * Bound: the label `provider` has the names of existing providers; other names in requests count as `-`.
 */
import { sched, type Broadcast, type Mpsc } from '@ron/kernel';
import type { DeliveryDto } from '@ron/proto';
import type { AuditEvent } from '../audit/audit-event.ts';
import type { InteropEvent } from '../events.ts';
import type { RecentDeliveries } from './recent-deliveries.ts';
import { UNKNOWN_PROVIDER, type RefusalSum, type RefusalSums } from './refusal-sums.ts';

type DeliveryOutcome = DeliveryDto['outcome'];
export { UNKNOWN_PROVIDER };

export interface DeliveryRecorderInit {
  readonly recent: Pick<RecentDeliveries, 'add'>;
  readonly sums: RefusalSums;
  readonly audit: Mpsc<AuditEvent>;
  readonly events: Pick<Broadcast<InteropEvent>, 'publish'>;
}

export type DeliveryRecord = Omit<DeliveryDto, 'seq' | 'at_ms'> & { readonly ip?: string };

export class DeliveryRecorder {
  readonly #init: DeliveryRecorderInit;
  /** By `provider outcome`. */
  readonly totals = new Map<string, { readonly provider: string; readonly outcome: DeliveryOutcome; value: number }>();

  constructor(init: DeliveryRecorderInit) {
    this.#init = init;
  }

  /** `label`: the provider in the counters, `-` for one that does not exist any more. */
  record(record: DeliveryRecord, label: string = record.provider): void {
    const { provider, outcome, reason } = record;
    this.#count(label, outcome);
    if (outcome === 'refused' && !this.#init.sums.admits(provider, reason)) return;
    this.#write(record);
  }

  /** Records the sums of past seconds. The task `audit_sink` calls it. */
  recordSums(): void {
    this.#writeSums(this.#init.sums.due());
  }

  /** Records the sums of the second that a stop cuts short. */
  recordLastSums(): void {
    this.#writeSums(this.#init.sums.rest());
  }

  /** Forgets the counters of a removed provider, so that labels stay bounded. */
  forget(provider: string): void {
    for (const [key, total] of this.totals) if (total.provider === provider) this.totals.delete(key);
  }

  #count(provider: string, outcome: DeliveryOutcome): void {
    const key = `${provider} ${outcome}`;
    const total = this.totals.get(key);
    if (total === undefined) this.totals.set(key, { provider, outcome, value: 1 });
    else total.value += 1;
  }

  #writeSums(sums: readonly RefusalSum[]): void {
    for (const { provider, reason, count } of sums)
      this.#write({ provider, outcome: 'refused', corr_id: '', count, ...(reason !== undefined && { reason }) });
  }

  #write({ ip, ...entry }: DeliveryRecord): void {
    const { recent, audit, events } = this.#init;
    const delivery = recent.add({ at_ms: sched.wall_ms(), ...entry });
    events.publish({ kind: 'delivery', delivery });
    // [interop I-9] The audit drops its oldest event rather than delay a request.
    audit.pushDropOldest({ kind: 'delivery', ...delivery, ...(ip !== undefined && { ip }) });
  }
}
