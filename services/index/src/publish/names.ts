/** Names as the routes and the resolver use them: publishing by the log of this node, and choosing between known records. */
import type { StoredName, StoredRecord, TrustedKey } from '../store/index-store.ts';

export interface Caller {
  readonly subject: string;
  readonly capability_id: string;
}

export interface Published {
  readonly name: StoredName;
  /** False if the same record was already current. */
  readonly isNew: boolean;
}

/** Pinned targets in total; more get `storage_full`. */
export const PINS_MAX = 4096;

export interface Names {
  /** The trust list, in order of the prefixes. */
  readonly trusted: readonly TrustedKey[];
  /** Targets that stay cached. At most `PINS_MAX`. */
  readonly pins: ReadonlySet<string>;
  /** Why publishing is refused; the readiness gate `name_log`. Resolving continues. */
  readonly problem: string | undefined;
  /**
   * Verifies and publishes a record. Rejects with `validation` (malformed record or signature), `conflict` with the current
   * record in `details.current`, `rate_limited` and `storage_full` (quotas), `busy` (queue full).
   */
  publish(record: Uint8Array, signature: Uint8Array, caller: Caller, signal: AbortSignal): Promise<Published>;
  setTrust(trusted: TrustedKey, caller: Caller, signal: AbortSignal): Promise<void>;
  /** Rejects with `not_found`. */
  removeTrust(prefix: string, caller: Caller, signal: AbortSignal): Promise<void>;
  setPin(target: string, isPinned: boolean, caller: Caller, signal: AbortSignal): Promise<void>;
  recordAdmin(action: string, caller: Caller, signal: AbortSignal): Promise<void>;

  /** The key for a bare label: that of the longest trusted prefix. Synchronous: the trust list is a snapshot in memory. */
  keyFor(label: string): string | undefined;
  isTrusted(key: string): boolean;
  /** Verifies records from the network, chooses the current one, records forks and the highest seq. Undefined: none is valid. */
  adopt(
    key: string,
    label: string,
    values: readonly Uint8Array[],
    signal: AbortSignal,
  ): Promise<StoredName | undefined>;
  /** Whether the validator of the DHT accepts a value: valid, not expired, its seq not below the highest seen. */
  accepts(key: string, label: string, value: Uint8Array): Promise<StoredRecord | undefined>;
}
