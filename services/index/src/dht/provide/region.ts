/**
 * A range of the key space with the peers that are closest to its keys, found by one lookup.
 *
 * Contract: all peers closer to a key of the range than the farthest of the `CLOSEST` peers are known, so that one lookup
 * serves all keys of the range. In a network of fewer peers, the range is the whole key space.
 * Bound: `REGION_PEERS_MAX` peers.
 */
import { commonPrefixBits, compareDistance, positionOfPeer } from '../keys.ts';
import { CLOSEST } from '../lookup/shortlist.ts';
import type { PeerRef } from '../peers.ts';

export const REGION_PEERS_MAX = 64;

export interface Region {
  contains(position: Uint8Array): boolean;
  /** The peers closest to the position, at most `CLOSEST`. */
  closestTo(position: Uint8Array): PeerRef[];
}

/** `closest` and `seen` are the result of a lookup of `center`. */
export function regionAround(center: Uint8Array, closest: readonly PeerRef[], seen: readonly PeerRef[]): Region {
  const peers = seen.slice(0, REGION_PEERS_MAX).map((peer) => ({ peer, position: positionOfPeer(peer.id)! }));
  const farthest = closest.length < CLOSEST ? undefined : positionOfPeer(closest.at(-1)!.id)!;
  const shared_bits = farthest === undefined ? 0 : commonPrefixBits(center, farthest) + 1;
  return {
    contains: (position) => commonPrefixBits(center, position) >= shared_bits,
    closestTo: (position) =>
      peers
        .toSorted((a, b) => compareDistance(position, a.position, b.position))
        .slice(0, CLOSEST)
        .map(({ peer }) => peer),
  };
}
