/**
 * The keys of a node and the capability of its owner.
 *
 * Promise: the root key is made once, mode 0600. Each service gets a file with its own keys and no other's. `root.cap`
 * holds, for each service, a token with all of its scopes; one that is about to expire, that lacks a scope which a
 * newer version knows, or that is under an old key, is replaced. What is still good is left as it is.
 */
import { FileKeySource, inspectToken, mint } from '@ron/auth';
import { sched } from '@ron/kernel';
import { scopesOf, type Service } from '@ron/proto';
import { readCapabilities, writeCapabilities, type Capabilities } from '../capability-file.ts';
import type { Home } from '../home.ts';

const DAY_MS = 24 * 3600 * 1000;
export const ROOT_TTL_MS = 90 * DAY_MS;
/** A token is replaced when less than this is left of it. */
const RENEW_MS = 30 * DAY_MS;

/** Makes or renews everything; `audiences` are the services that this node can run. */
export async function prepareKeys(home: Home, audiences: readonly Service[], signal: AbortSignal): Promise<void> {
  await using keys = await FileKeySource.open({ path: home.keys }, signal);
  for (const audience of audiences) await keys.writeAudienceFile(home.of(audience).keys, audience, signal);
  await renew(home, keys, audiences, signal);
}

/** For a node that runs for months. */
export async function renewCapability(home: Home, audiences: readonly Service[], signal: AbortSignal): Promise<void> {
  await using keys = await FileKeySource.open({ path: home.keys, create: false }, signal);
  await renew(home, keys, audiences, signal);
}

async function renew(
  home: Home,
  keys: FileKeySource,
  audiences: readonly Service[],
  signal: AbortSignal,
): Promise<void> {
  const found = await readCapabilities(home.capability);
  const before: Capabilities = typeof found === 'object' ? found : {};
  const after: Partial<Record<Service, string>> = { ...before };
  for (const audience of audiences) {
    const { key_id } = await keys.current(audience, signal);
    if (isGood(before[audience], audience, key_id)) continue;
    const init = { audience, scopes: scopesOf(audience), ttl_ms: ROOT_TTL_MS, subject: 'root' };
    after[audience] = (await mint(keys, init, signal)).token;
  }
  if (audiences.some((audience) => before[audience] !== after[audience]))
    await writeCapabilities(home.capability, after);
}

function isGood(token: string | undefined, audience: Service, key_id: string): boolean {
  if (token === undefined) return false;
  try {
    const capability = inspectToken(token);
    if (capability.audience !== audience || capability.key_id !== key_id) return false;
    if (!scopesOf(audience).every((scope) => capability.scopes.includes(scope))) return false;
    return capability.expires_ms - sched.wall_ms() > RENEW_MS;
  } catch {
    return false;
  }
}
