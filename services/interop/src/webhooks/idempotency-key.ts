/**
 * The idempotency key of a delivery: BLAKE3 of provider, incarnation, scheme and dedup value. Only the last can have a line feed.
 * A provider that was removed and added again is another one: without the incarnation, mailbox would take its new deliveries for
 * duplicates of old ones.
 */
import { blake3 } from '@napi-rs/blake-hash';
import type { SchemeName } from '@ron/proto';

export interface DeliveryIdentity {
  readonly provider: string;
  readonly incarnation: number;
  readonly scheme: SchemeName;
  readonly dedup: string;
}

export function idempotencyKey({ provider, incarnation, scheme, dedup }: DeliveryIdentity): string {
  return blake3(Buffer.from(`${provider}\n${incarnation}\n${scheme}\n${dedup}`)).toString('hex');
}
