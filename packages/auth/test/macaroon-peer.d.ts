/** The parts of the npm package `macaroon` that the cross-check uses; it ships no types. */
declare module 'macaroon' {
  export interface PeerMacaroon {
    readonly identifier: Uint8Array;
    readonly signature: Uint8Array;
    readonly caveats: readonly { identifier: Uint8Array; vid?: Uint8Array; location?: string }[];
    addFirstPartyCaveat(caveat: string | Uint8Array): void;
    addThirdPartyCaveat(rootKey: Uint8Array, caveat: string | Uint8Array, location?: string): void;
    exportBinary(): Uint8Array;
    /** Throws unless the chain holds and `check` returns null for each caveat. */
    verify(rootKey: Uint8Array, check: (caveat: string) => string | null, discharges?: PeerMacaroon[]): void;
  }
  export function newMacaroon(init: {
    identifier: string | Uint8Array;
    rootKey: string | Uint8Array;
    location?: string;
    version?: 1 | 2;
  }): PeerMacaroon;
  export function importMacaroon(macaroon: string | Uint8Array): PeerMacaroon;
  export function bytesToBase64(bytes: Uint8Array): string;
}
