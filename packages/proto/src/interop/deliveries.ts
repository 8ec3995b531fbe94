/** Answers to webhooks, reasons of refusals, and the list of recent deliveries. */

/** Why a request is refused: `X-Reason`, the member `reason` of a problem, and `rejected_total{reason}`. */
export const REJECT_REASONS = [
  'BAD_ORIGIN',
  'EXPIRED_TOKEN',
  'SCOPE_MISMATCH',
  'POLICY_BLOCKED',
  'BODY_LIMIT',
  'DECOMP_LIMIT',
  'RATE_LIMIT',
  'BUSY',
  'BACKPRESSURE',
  'DOWNSTREAM_UNAVAILABLE',
] as const;
export type RejectReason = (typeof REJECT_REASONS)[number];

/** The answer to an accepted webhook. */
export interface AcceptedWebhook {
  /** The id of its receipt. The message has the same id, except for some duplicates. */
  readonly receipt: string;
  readonly duplicate: boolean;
  /** `b3:<hex>` of the body. */
  readonly b3: string;
  readonly place: 'mailbox' | 'spool';
}

/** One delivery in `GET /admin/deliveries`; never its body. */
export interface DeliveryDto {
  readonly seq: number;
  readonly at_ms: number;
  readonly provider: string;
  readonly outcome: 'accepted' | 'duplicate' | 'spooled' | 'refused' | 'challenge';
  readonly corr_id: string;
  readonly bytes?: number;
  readonly b3?: string;
  readonly receipt?: string;
  readonly event?: string;
  readonly delivery_id?: string;
  readonly reason?: RejectReason;
  readonly detail?: string;
  /** Equal refusals that were summed into this entry. */
  readonly count?: number;
  readonly test?: boolean;
}

export interface DeliveriesPage {
  readonly deliveries: readonly DeliveryDto[];
  /** Pass it as `after` for later ones. */
  readonly next: number;
  /** Entries after `after`, up to `next`, that are gone. */
  readonly lost: number;
}
