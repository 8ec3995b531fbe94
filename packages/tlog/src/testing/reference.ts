/** RFC 6962, section 2.1, transcribed literally: slow, and independent of the code under test. */
import { createHash } from 'node:crypto';

const sha256 = (...parts: readonly Uint8Array[]): Buffer => {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest();
};

function largestPowerBelow(n: number): number {
  let k = 1;
  while (k * 2 < n) k *= 2;
  return k;
}

/** MTH(D[n]) */
export function treeHash(d: readonly Uint8Array[]): Buffer {
  if (d.length === 0) return sha256();
  if (d.length === 1) return sha256(Uint8Array.of(0x00), d[0]!);
  const k = largestPowerBelow(d.length);
  return sha256(Uint8Array.of(0x01), treeHash(d.slice(0, k)), treeHash(d.slice(k)));
}

/** PATH(m, D[n]) */
export function path(m: number, d: readonly Uint8Array[]): Buffer[] {
  if (d.length === 1) return [];
  const k = largestPowerBelow(d.length);
  if (m < k) return [...path(m, d.slice(0, k)), treeHash(d.slice(k))];
  return [...path(m - k, d.slice(k)), treeHash(d.slice(0, k))];
}

/** PROOF(m, D[n]) */
export function proof(m: number, d: readonly Uint8Array[]): Buffer[] {
  return m === 0 || m === d.length ? [] : subProof(m, d, true);
}

function subProof(m: number, d: readonly Uint8Array[], isWhole: boolean): Buffer[] {
  if (m === d.length) return isWhole ? [] : [treeHash(d)];
  const k = largestPowerBelow(d.length);
  if (m <= k) return [...subProof(m, d.slice(0, k), isWhole), treeHash(d.slice(k))];
  return [...subProof(m - k, d.slice(k), false), treeHash(d.slice(0, k))];
}
