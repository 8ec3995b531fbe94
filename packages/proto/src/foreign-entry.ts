/** The entries of other services in the audit log of kms: `POST /v1/kms/audit/entries`. */

/** The capability that made the operation possible. */
export interface EntryActor {
  readonly capability_id: string;
  readonly subject: string;
  /** The ids of the capabilities that it was issued from, nearest first. */
  readonly chain: readonly string[];
}

interface EntryOrigin {
  /** Kms appends an entry once per op_id, so it may be sent again. */
  readonly op_id: string;
  /** Unix time in ms of the operation, which may be earlier than the entry. */
  readonly time_ms: number;
  readonly by: EntryActor;
}

export interface IssueEntry extends EntryOrigin {
  readonly op: 'issue';
  readonly capability_id: string;
  readonly subject: string;
  readonly audience: string;
  readonly scopes: readonly string[];
  readonly expires_ms: number;
}

/** Without a subject and an id: all capabilities. */
export interface RevokeEntry extends EntryOrigin {
  readonly op: 'revoke';
  readonly subject?: string;
  readonly capability_id?: string;
  readonly epoch: number;
  /** Earlier revocations whose entries were lost. */
  readonly missed?: number;
}

export type ForeignEntry = IssueEntry | RevokeEntry;
