/** The handler by which other services of the node append to the audit log. */
import { AUDIENCE_TENANT, isServiceSubject, serviceOf } from '@ron/auth';
import { json, type RouteAnswer, type RouteContext } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import type { Auditor } from '../audit/auditor.ts';
import { encodeForeignEntry } from '../audit/foreign-entry.ts';
import type { OpLedger } from '../ops/op-ledger.ts';
import { NO_STORE } from './no-store.ts';
import type * as schemas from './schemas.ts';

export interface EntryRoutesInit {
  readonly auditor: Pick<Auditor, 'recordForeign'>;
  readonly ledger: Pick<OpLedger, 'once'>;
}

/** Responds when the entry is durable. Each op_id leaves one entry. */
export async function appendEntry(
  { auditor, ledger }: EntryRoutesInit,
  { body, grant, deadline }: RouteContext<typeof schemas.ENTRY>,
): Promise<RouteAnswer> {
  const subject = grant?.subject ?? '';
  if (!isServiceSubject(subject)) throw new RonError('forbidden', 'only services of this node append entries');
  const service = serviceOf(subject);
  const append = async (): Promise<{ readonly log_index: number }> => {
    // Issuing uses the share of the issuer, so that a flood of it stops neither revocations nor changes of the root.
    const holder = body.op === 'issue' ? `@${body.by.capability_id}` : AUDIENCE_TENANT;
    const log_index = await auditor.recordForeign(encodeForeignEntry(service, body), holder, deadline.signal);
    return { log_index };
  };
  const op = { tenant: AUDIENCE_TENANT, op_id: `${service}:${body.op_id}`, request: body };
  return json(200, await ledger.once(op, append, deadline.signal), NO_STORE);
}
