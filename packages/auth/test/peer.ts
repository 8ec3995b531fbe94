/** The npm package `macaroon`, mended. */
import * as macaroon from 'macaroon';

export type { PeerMacaroon } from 'macaroon';
export const { newMacaroon, importMacaroon, bytesToBase64 } = macaroon;

// It asks its write buffer for a `_capacity` that it never sets, so it doubles the buffer at every append and runs out of
// memory at five caveats. Giving it the capacity changes nothing in what it writes.
// oxlint-disable-next-line no-extend-native
Object.defineProperty(Object.prototype, '_capacity', {
  configurable: true,
  get(this: { _buf?: Uint8Array }): number | undefined {
    return this._buf?.length; // oxlint-disable-line no-underscore-dangle
  },
});
