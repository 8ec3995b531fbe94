/**
 * Whether the spool can take deliveries, and the deliveries that it lost. Each change of the disk is reported once.
 *
 * Contract: a failed append or maintenance counts until one succeeds. A part that cannot be read is not lost (unread-segments.ts).
 */
import { isRonError } from '@ron/kernel';

export type SpoolEvent =
  | { readonly kind: 'spool began'; readonly provider: string }
  | { readonly kind: 'spool emptied' }
  /** Deliveries cannot be stored, or settled records cannot be written. */
  | { readonly kind: 'spool problem'; readonly problem: string }
  | { readonly kind: 'spool recovered' }
  /** The disk could not read a part of the log at the start. Its deliveries wait. */
  | { readonly kind: 'spool part unreadable'; readonly problem: string }
  | { readonly kind: 'spool part read'; readonly segment: number; readonly deliveries: number }
  /** A part of the log, or a delivery, is lost. */
  | { readonly kind: 'spool damaged'; readonly problem: string };

export class SpoolCondition {
  readonly #onEvent: (event: SpoolEvent) => void;
  #failure: string | undefined;
  /** Damaged parts of the log, and deliveries whose record was damaged, since the start. */
  damaged_total = 0;

  constructor(onEvent: (event: SpoolEvent) => void) {
    this.#onEvent = onEvent;
  }

  /** Why the log cannot be written; undefined if it can. */
  get failure(): string | undefined {
    return this.#failure;
  }

  /** Returns the error. One that is not the disk's is not a failure. */
  failed(error: unknown): unknown {
    if (!isRonError(error, 'not_ready') && !isRonError(error, 'storage_full')) return error;
    const failure = `the spool cannot be written: ${error.message}`;
    if (this.#failure !== failure) this.#onEvent({ kind: 'spool problem', problem: failure });
    this.#failure = failure;
    return error;
  }

  succeeded(): void {
    if (this.#failure === undefined) return;
    this.#failure = undefined;
    this.#onEvent({ kind: 'spool recovered' });
  }

  damaged(problem: string): void {
    this.damaged_total += 1;
    this.#onEvent({ kind: 'spool damaged', problem });
  }
}
