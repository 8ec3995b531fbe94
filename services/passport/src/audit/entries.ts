/**
 * The entries of passport in the audit log of the node, which kms keeps: issued and revoked capabilities.
 *
 * Contract: an entry names the subjects and ids of capabilities, never a capability. Kms appends an entry once per op_id,
 * so it may be sent again.
 */
import { narrowed } from '@ron/auth/narrowed';
import { JsonCalls, type AuthorizedRequest } from '@ron/client/calls';
import { reachPrivately } from '@ron/client/node';
import { POLICIES, sched } from '@ron/kernel';
import type { ForeignEntry } from '@ron/proto';

/** Resolves when the entry is durable. */
export type AppendEntry = (entry: ForeignEntry, signal: AbortSignal) => Promise<void>;

export interface KmsEntriesInit {
  /** `unix:PATH`, or `https://` with a pin. */
  readonly url: string;
  readonly pin?: string | undefined;
  /** With scope `kms:log`. Called before each entry. */
  readonly capability: () => Promise<string>;
  readonly deadline_ms: number;
}

const ID_BYTES = 16;

export function newOpId(): string {
  return Buffer.from(sched.randomBytes(ID_BYTES)).toString('hex');
}

/** `POST /v1/kms/audit/entries`. */
export function appendThroughKms({ url, pin, capability, deadline_ms }: KmsEntriesInit): AppendEntry {
  const kms = reachPrivately(url, pin);
  return async (entry, signal) => {
    const token = await capability();
    const authorize = ({ body }: AuthorizedRequest): string => narrowed(token, { audience: 'kms', body });
    const calls = new JsonCalls('v1/kms/', { ...kms, authorize, deadline_ms, policy: POLICIES.kms });
    await calls.post('entries', 'audit/entries', entry, signal);
  };
}
