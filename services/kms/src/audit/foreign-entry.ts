/**
 * Entries of other services in the audit log, in canonical JSON like the events of kms: sorted keys, no spaces.
 *
 * Contract: the service is named by its capability, not by the request. An entry contains names, ids and times, never a
 * capability. Bound: every field is bounded by the schema of its route; an entry has a few KiB.
 */
import type { ForeignEntry } from '@ron/proto';

export function encodeForeignEntry(service: string, entry: ForeignEntry): Buffer {
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
