/** A verified webhook on its way to mailbox or spool. */
import type { WebhookReceipt } from '@ron/proto';
import type { Delivery } from '../mailbox/delivery.ts';

export interface VerifiedDelivery {
  readonly delivery: Delivery;
  /** Its receipt, if it is not a duplicate. It has the id of the delivery. */
  readonly receipt: WebhookReceipt;
}

/** A delivery that is durable, with a durable receipt. */
export interface Accepted {
  /** The id of the receipt: for a duplicate, that of the first delivery. */
  readonly receipt: string;
  readonly duplicate: boolean;
  readonly place: 'mailbox' | 'spool';
}
