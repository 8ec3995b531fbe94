/** Whether the spool has room for a record (spool-limits.ts), and how full it is. Records that are being written count too. */
import type { SpoolLimits } from './store/spool-limits.ts';
import type { SpoolState } from './state/spool-state.ts';

/** Above it the gate `spool` reports. */
const PROBLEM_SHARE = 0.8;

export class SpoolRoom {
  readonly #limits: SpoolLimits;
  readonly #state: SpoolState;
  readonly #diskBytes: () => number;

  constructor(limits: SpoolLimits, state: SpoolState, diskBytes: () => number) {
    this.#limits = limits;
    this.#state = state;
    this.#diskBytes = diskBytes;
  }

  /** Room for a delivery of the provider. */
  hasFor(provider: string, bytes: number): boolean {
    const { room_bytes, deliveries_max, provider_bytes_max, provider_deliveries_max } = this.#limits;
    // [interop I-3] [interop I-9]
    if (this.#used_bytes + bytes > room_bytes || this.#state.table.size >= deliveries_max) return false;
    const queue = this.#state.queues.get(provider);
    if (queue === undefined) return bytes <= provider_bytes_max;
    return queue.bytes + bytes <= provider_bytes_max && queue.count < provider_deliveries_max;
  }

  /** Room for a settled record. */
  hasForSettled(bytes: number): boolean {
    const { bytes_max, segment_bytes } = this.#limits;
    return this.#used_bytes + bytes <= bytes_max - segment_bytes;
  }

  /** Why there is no room now or soon; undefined if there is. */
  get problem(): string | undefined {
    const { room_bytes, deliveries_max, provider_bytes_max, provider_deliveries_max } = this.#limits;
    const share = Math.max(this.#used_bytes / room_bytes, this.#state.table.size / deliveries_max);
    if (share >= PROBLEM_SHARE) return `the spool is ${Math.floor(share * 100)} % full`;
    for (const { provider, bytes, count } of this.#state.queues) {
      const used = Math.max(bytes / provider_bytes_max, count / provider_deliveries_max);
      if (used >= PROBLEM_SHARE) return `the part of ${provider} in the spool is ${Math.floor(used * 100)} % full`;
    }
    return undefined;
  }

  get #used_bytes(): number {
    return this.#diskBytes() + this.#state.pending_bytes;
  }
}
