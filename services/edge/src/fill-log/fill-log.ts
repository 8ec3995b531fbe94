/** The transparency log of fills, as its users see it. */
import type { AuditProof } from '@ron/proto';
import type { ServedLog } from '@ron/service';

export interface FillLog {
  /** Why fills are not logged now, and so not cached; undefined if they are. */
  readonly problem: string | undefined;
  /** Appends encoded entries, durable when it resolves; returns the index of the first. */
  append(entries: readonly Uint8Array[], signal: AbortSignal): Promise<number>;
  /** Undefined until a checkpoint covers the entry. Throws `not_found` if the entry was pruned. */
  proof(index: number): Promise<AuditProof | undefined>;
  /** For the routes that serve the log; undefined if it could not be opened. */
  readonly served:
    | (ServedLog & { readonly mark: { readonly before: number; readonly entry: number } | undefined })
    | undefined;
  /** The name of the log and the keys that sign it; no keys until kms has created one. */
  readonly keys: { readonly origin: string; readonly vkeys: readonly string[] } | undefined;
}
