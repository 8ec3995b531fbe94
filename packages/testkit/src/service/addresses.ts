import { blake3 } from '@napi-rs/blake-hash';

/** The address of bytes, computed by another implementation than the one under test. */
export const addressOf = (bytes: Uint8Array): string => `b3:${blake3(bytes).toString('hex')}`;
