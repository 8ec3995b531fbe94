/**
 * Entries of other services in the audit log, in canonical JSON like the events of kms: sorted keys, no spaces.
 *
 * Contract: the service is named by its capability, not by the request. An entry contains names, ids and times, never a
 * capability. Bound: every field is bounded by the schema of its route; an entry has a few KiB.
 */

/** The capability that made the operation possible. */
export interface EntryActor {
  readonly capability_id: string;
  readonly subject: string;
  /** The ids of the capabilities that it was issued from, nearest first. */
  readonly chain: readonly string[];
}

export type ServiceEntry = {
  readonly op_id: string;
  /** Unix time in ms of the operation, which may be earlier than the entry. */
  readonly time_ms: number;
  readonly by: EntryActor;
} & (
  | {
      readonly op: 'issue';
      readonly capability_id: string;
      readonly subject: string;
      readonly audience: string;
      readonly scopes: readonly string[];
      readonly expires_ms: number;
    }
  | {
      readonly op: 'revoke';
      /** Without a subject and an id: all capabilities. */
      readonly subject?: string;
      readonly capability_id?: string;
      readonly epoch: number;
      /** Earlier revocations whose entries were lost. */
      readonly missed?: number;
    }
);

export function encodeServiceEntry(service: string, entry: ServiceEntry): Buffer {
  const { by, capability_id, subject, ...rest } = entry;
  const members: Record<string, unknown> = {
    ...rest,
    actor: by.capability_id,
    chain: by.chain,
    target_subject: subject ?? (capability_id === undefined ? 'all' : undefined),
    target_id: capability_id,
    result: 'ok',
    service,
    subject: by.subject,
  };
  const sorted = Object.entries(members)
    .filter(([, value]) => value !== undefined)
    .toSorted(([a], [b]) => (a < b ? -1 : 1));
  return Buffer.from(JSON.stringify(Object.fromEntries(sorted)), 'latin1');
}
