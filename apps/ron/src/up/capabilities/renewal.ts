/**
 * Decides when a capability of the node itself is replaced.
 *
 * Contract: a token is kept if it verifies, is not revoked, has exactly the wanted audience, subject, scopes and caveats,
 * was minted with the current key, and is valid for at least a third of its lifetime. Otherwise a new one is minted. The
 * capability of the owner, a person, lives for months; those of calls are renewed by the running node, and live for an hour.
 */
import { Checker, inspectToken, mint, type Capability, type KeySource, type RevocationEpochs } from '@ron/auth';
import { sched } from '@ron/kernel';
import type { FactName } from '@ron/proto';
import type { Wanted } from '../table/capability-files.ts';

/** The caveats that `mint` writes itself: audience, expiry, scopes. */
const OWN_CAVEATS = 3;
const FACTS: readonly FactName[] = ['address', 'name', 'label', 'tenant'];

export interface Minter {
  readonly keys: KeySource;
  readonly epochs: RevocationEpochs;
}

/** Returns the token if it is still good, else a new one. */
export async function renewed(
  token: string | undefined,
  wanted: Wanted,
  minter: Minter,
  signal: AbortSignal,
): Promise<string> {
  if (token !== undefined && (await isGood(token, wanted, minter, signal))) return token;
  const epoch = Math.max(sched.wall_ms(), minter.epochs.floor(wanted.subject));
  return (await mint(minter.keys, { ...wanted, epoch }, signal)).token;
}

async function isGood(token: string, wanted: Wanted, { keys, epochs }: Minter, signal: AbortSignal): Promise<boolean> {
  const { audience } = wanted;
  const capability = inspected(token);
  if (capability === undefined || !isAsWanted(capability, wanted)) return false;
  if (capability.key_id !== (await keys.current(audience, signal)).key_id) return false;
  if (capability.expires_ms - sched.wall_ms() <= wanted.ttl_ms / 3) return false;
  // The same key id may denote another key, if the data directory was replaced by that of another node.
  const request = {
    authorization: `Bearer ${token}`,
    scope: wanted.scopes[0]!,
    source_ip: '127.0.0.1',
    facts_later: FACTS,
  };
  return (await new Checker({ audience, keys, epochs }).checkHeaders(request, signal)).ok;
}

function inspected(token: string): Capability | undefined {
  try {
    return inspectToken(token);
  } catch {
    return undefined;
  }
}

/** Whether the capability has exactly the wanted audience, subject, scopes and caveats. Does not verify it. */
export function isAsWanted(found: Capability, { audience, subject, scopes, caveats }: Wanted): boolean {
  return (
    found.audience === audience &&
    found.subject === subject &&
    isSameSet(found.scopes, scopes) &&
    isSameSet(found.texts.slice(OWN_CAVEATS), caveats)
  );
}

function isSameSet(left: readonly string[], right: readonly string[]): boolean {
  return left.length === right.length && left.every((each) => right.includes(each));
}
