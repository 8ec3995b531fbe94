/** The npm package `macaroon` with a fix. */
import * as macaroon from 'macaroon';

export type { PeerMacaroon } from 'macaroon';
export const { newMacaroon, importMacaroon, bytesToBase64 } = macaroon;

// It reads a `_capacity` of its write buffer that it never sets, so it doubles the buffer at every append and runs out
// of memory at five caveats. Defining the property does not change its output.
// oxlint-disable-next-line no-extend-native
Object.defineProperty(Object.prototype, '_capacity', {
  configurable: true,
  get(this: { _buf?: Uint8Array }): number | undefined {
    return this._buf?.length; // oxlint-disable-line no-underscore-dangle
  },
});
