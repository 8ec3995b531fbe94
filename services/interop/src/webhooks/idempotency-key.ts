/** The idempotency key of a delivery: BLAKE3 of provider, scheme and dedup value. None of the first two has a line feed. */
import { blake3 } from '@napi-rs/blake-hash';
import type { SchemeName } from '@ron/proto';

export function idempotencyKey(provider: string, scheme: SchemeName, dedup: string): string {
  return blake3(Buffer.from(`${provider}\n${scheme}\n${dedup}`)).toString('hex');
}
