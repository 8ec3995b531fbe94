/** A verified webhook, and the message that it becomes. */
import type { OutgoingMessage } from '@ron/proto';

export interface Delivery {
  /** A ULID: that of its message and of its receipt, unless the delivery is a duplicate. */
  readonly id: string;
  readonly provider: string;
  readonly topic: string;
  /** 64 hex digits. */
  readonly idempotency_key: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly received_ms: number;
  readonly payload: Uint8Array;
}

export function messageOf({ topic, id, idempotency_key, headers, payload }: Delivery): OutgoingMessage {
  return { topic, id, idempotency_key, headers, payload };
}
