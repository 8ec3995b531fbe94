/** The transparency log of fills, as its users see it. */
import type { AuditProof } from '@ron/proto';
import type { Provenance } from '../cache/cached-asset.ts';

export interface FillLog {
  /** Why fills are not logged, and so not cached; undefined if they are. */
  readonly problem: string | undefined;
  /** Appends entries, durable when it resolves; returns the index of the first. */
  append(entries: readonly Provenance[], signal: AbortSignal): Promise<number>;
  /** Undefined until a checkpoint covers the entry. */
  proof(index: number): Promise<AuditProof | undefined>;
}
