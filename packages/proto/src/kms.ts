/** Requests and answers of the key service. */

/** Which of a key's signatures must be valid: one of them, all of them, or the post-quantum one. */
export type VerifyMode = 'or' | 'and' | 'pq_only';

export interface PublicPart {
  readonly alg: string;
  /** DER SubjectPublicKeyInfo. */
  readonly pubkey_b64: string;
}

/** One public key, the parts of a hybrid key, or neither for a symmetric one. */
export interface PublicKey {
  readonly alg: string;
  readonly pubkey_b64?: string;
  readonly parts?: readonly PublicPart[];
}

export interface CreateKeyInit {
  readonly tenant: string;
  /** `raw` keys sign bytes as they are. */
  readonly purpose: string;
  readonly alg: string;
  readonly policy?: {
    readonly verify_mode?: VerifyMode;
    /** False: the key keeps its only version, for verifiers that know its public key only. Default true. */
    readonly rotate?: boolean;
  };
  /** The idempotency key: a repeated request returns the same key. Default: a new id. */
  readonly op_id?: string;
}

export interface CreatedKey {
  /** With its version: `...#v1`. */
  readonly kid: string;
  readonly alg: string;
  readonly public: PublicKey;
}

export interface RotatedKey extends CreatedKey {
  /** The version that no longer signs. */
  readonly previous: string;
}

/** `destroying`: deleted, and key material may be left; repeat the deletion. */
export type KeyState = 'enabled' | 'disabled' | 'deleting' | 'destroying' | 'deleted';

export interface KeyInfo extends CreatedKey {
  readonly state: KeyState;
  /** When the second call may delete the whole key, in Unix ms. */
  readonly deletable_ms?: number;
  readonly versions: readonly string[];
  readonly attestation_class: string;
  readonly verify_mode: VerifyMode;
  /** False: the key keeps its only version. */
  readonly rotate: boolean;
  /** Older versions do not verify. */
  readonly min_version: number;
  /** Older versions do not unwrap and derive. */
  readonly min_version_unwrap: number;
  /** When `min_version_unwrap` rises next, in Unix ms; absent if no raise is waiting. */
  readonly effective_ms?: number;
  /** Versions in the waiting period of their deletion. */
  readonly deleting?: readonly { readonly version: string; readonly deletable_ms: number }[];
}

/** A key or version after a step of its deletion. */
export interface KeyDeletion {
  readonly kid: string;
  readonly state: 'kept' | 'pending' | 'deleted';
  /** When the second call may follow, in Unix ms. */
  readonly deletable_ms?: number;
}

export interface KeyPage {
  readonly keys: readonly KeyInfo[];
  readonly next?: string;
}

export interface SignInit {
  readonly kid?: string;
  /** Several keys of one tenant; each of them signs. */
  readonly kid_set?: readonly string[];
  /** The BLAKE3 hash of the payload, in hex. */
  readonly payload_b3?: string;
  /** For keys of purpose `raw`. */
  readonly message_b64?: string;
  readonly op_id?: string;
}

export interface Signature {
  readonly kid: string;
  readonly alg: string;
  readonly signature_b64: string;
}

export interface SignedPayload {
  readonly kid: string;
  readonly sigs: readonly Signature[];
  /** The position in the audit log; absent when the log lags behind. */
  readonly log_index?: number;
  readonly proof?: AuditProof;
}

export interface VerifyInit {
  readonly kid: string;
  readonly payload_b3?: string | undefined;
  readonly message_b64?: string | undefined;
  readonly sigs: readonly { readonly kid?: string; readonly alg: string; readonly signature_b64: string }[];
  /** Must be at least as strict as the key's own mode. */
  readonly mode?: VerifyMode | undefined;
}

export interface Verification {
  readonly ok: boolean;
  readonly details: {
    readonly checked: readonly { readonly alg: string; readonly ok: boolean }[];
    readonly satisfied_mode?: VerifyMode;
    readonly reason?: string;
  };
  /** The age of the cached public key; set while the backend is unavailable. */
  readonly cache_age_ms?: number;
}

export interface WrappedKey {
  readonly kid: string;
  readonly alg: string;
  readonly wrapped_b64: string;
}

export interface DataKey extends WrappedKey {
  /** The caller zeroes it after use. */
  readonly plaintext: Uint8Array;
}

export interface AuditKeys {
  readonly origin: string;
  readonly vkeys: readonly string[];
}

/** The last checkpoint of a log. */
export interface LogExtent {
  readonly origin: string;
  readonly size: number;
  readonly root_b64: string;
}

/** Whether the audit log is sound, for its operator. */
export interface AuditStatus {
  readonly origin: string;
  /** Why kms refuses to sign; absent if the log is sound. */
  readonly problem?: string;
  /** Names the problem in a request that accepts it. */
  readonly problem_sha256?: string;
  /** The last checkpoint in the store of kms. */
  readonly known?: LogExtent;
  /** The last checkpoint in the directory of the log, if it can be read. */
  readonly found?: LogExtent;
  /** The problem was accepted: the next start begins this log. */
  readonly next_origin?: string;
}

/** The answer to an accepted problem. */
export interface AcceptedAudit {
  /** The log that begins with the next start of kms. */
  readonly next_origin: string;
  /** The directory beside the log in which the former one is kept; absent if there was none. */
  readonly archive?: string;
}

export interface AuditProof {
  readonly log_index: number;
  readonly tree_size: number;
  readonly leaf_hash_b64: string;
  readonly path_b64: readonly string[];
  readonly entry_b64: string;
  /** A signed note. */
  readonly checkpoint: string;
}

/** The result of a pruning of the audit log. */
export interface AuditPruned {
  /** The index of the first entry that is left. */
  readonly before: number;
  readonly freed_bytes: number;
  /** The size of the rest. */
  readonly log_bytes: number;
}

/** The root of the keys that verify capabilities. */
export interface AudienceRootState {
  /** The current version. */
  readonly version: number;
  /** Capabilities under older versions are refused. */
  readonly min_version: number;
  readonly root_id: string;
}
