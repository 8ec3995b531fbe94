/** The transparency log of fills, as its users see it. */
import type { Provenance } from '../cache/cached-asset.ts';

export interface FillProof {
  readonly index: number;
  readonly entry: Provenance;
  /** The signed note of the checkpoint that covers the entry. */
  readonly checkpoint: string;
  /** Hashes of the inclusion proof, base64. */
  readonly path: readonly string[];
}

export interface FillLog {
  /** Why fills are not logged, and so not cached; undefined if they are. */
  readonly problem: string | undefined;
  /** Appends entries, durable when it resolves; returns the index of the first. */
  append(entries: readonly Provenance[], signal: AbortSignal): Promise<number>;
  /** Undefined until a checkpoint covers the entry. */
  proof(index: number, signal: AbortSignal): Promise<FillProof | undefined>;
}
