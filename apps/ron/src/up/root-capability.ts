/**
 * The keys of a node and the capabilities of its owner and its services.
 *
 * Promise: with kms, every capability is minted under keys that kms derived, and no key is written down here: the owner's
 * capability, which kms leaves in its own directory, is what asks for them. Each service gets a capability to derive its
 * own keys and no other's; passport, which issues for all, may derive all. Without kms there is a root key (0600), and each
 * service has a file with its own keys. `root.cap` holds, for each service, a token with all of its scopes. What is about to
 * expire, lacks a scope that a newer version knows, was revoked or no longer verifies is replaced; the rest is left.
 */
import {
  AUDIENCE_LABEL,
  Checker,
  DerivedKeySource,
  FileKeySource,
  inspectToken,
  mint,
  NOTHING_REVOKED,
  ROOT_SUBJECT,
  serviceSubject,
  type KeySource,
  type MintInit,
  type RevocationEpochs,
} from '@ron/auth';
import { AUDIENCE_TENANT, KmsDeriver } from '@ron/auth/service';
import { sched } from '@ron/kernel';
import { scopesOf, type Service } from '@ron/proto';
import { readCapabilities, readCapabilityFile, writeCapabilities, type Capabilities } from '../capability-file.ts';
import { CliError } from '../exits.ts';
import type { Home } from '../home.ts';
import { writeSecret } from '../secret-file.ts';

const DAY_MS = 24 * 3600 * 1000;
export const ROOT_TTL_MS = 90 * DAY_MS;
/** A token is replaced when less than this is left of it. */
const RENEW_MS = 30 * DAY_MS;

/** Without kms: makes or renews everything; `audiences` are the services that this node can run. */
export async function prepareKeys(home: Home, audiences: readonly Service[], signal: AbortSignal): Promise<void> {
  await using keys = await FileKeySource.open({ path: home.keys }, signal);
  for (const audience of audiences) await keys.writeAudienceFile(home.of(audience).keys, audience, signal);
  await renewRoot(home, keys, audiences, NOTHING_REVOKED, signal);
}

/** Without kms, for a node that runs for months. */
export async function renewCapability(home: Home, audiences: readonly Service[], signal: AbortSignal): Promise<void> {
  await using keys = await FileKeySource.open({ path: home.keys, create: false }, signal);
  await renewRoot(home, keys, audiences, NOTHING_REVOKED, signal);
}

export interface ThroughKmsInit {
  readonly home: Home;
  /** Where kms is. */
  readonly url: string;
  readonly audiences: readonly Service[];
  /** What is known to be revoked. */
  readonly epochs: RevocationEpochs;
}

/** With kms: makes or renews the capabilities of its owner and of the services. */
export async function prepareThroughKms(init: ThroughKmsInit, signal: AbortSignal): Promise<void> {
  const { home, url, audiences, epochs } = init;
  const { owner } = home.of('kms');
  const token = await readCapabilityFile(owner, 'kms');
  if (token === undefined) throw new CliError('permission', `kms left no capability at ${owner}`);
  const capability = (): Promise<string> => Promise.resolve(token);
  await using keys = new DerivedKeySource({ deriver: new KmsDeriver({ url: () => Promise.resolve(url), capability }) });
  for (const service of audiences.filter((audience) => audience !== 'kms')) {
    const path = home.of(service).kms_capability;
    const wanted = serviceCapability(service);
    const before = await readCapabilityFile(path, 'kms');
    const after = await renewed(before, wanted, keys, epochs, signal);
    if (after !== before) await writeSecret(path, `${after}\n`);
  }
  await renewRoot(home, keys, audiences, epochs, signal);
}

/** What a service may ask kms for: its own audience keys. */
function serviceCapability(service: Service): MintInit {
  // Whoever issues for all has the keys of all.
  const label = service === 'passport' ? AUDIENCE_LABEL : `${AUDIENCE_LABEL}${service}/`;
  const caveats = [`tenant = ${AUDIENCE_TENANT}`, `label ^= ${label}`];
  return { audience: 'kms', scopes: ['kms:derive'], ttl_ms: ROOT_TTL_MS, subject: serviceSubject(service), caveats };
}

async function renewRoot(
  home: Home,
  keys: KeySource,
  audiences: readonly Service[],
  epochs: RevocationEpochs,
  signal: AbortSignal,
): Promise<void> {
  const found = await readCapabilities(home.capability);
  const before: Capabilities = typeof found === 'object' ? found : {};
  const after: Partial<Record<Service, string>> = { ...before };
  for (const audience of audiences) {
    const wanted = { audience, scopes: scopesOf(audience), ttl_ms: ROOT_TTL_MS, subject: ROOT_SUBJECT };
    after[audience] = await renewed(before[audience], wanted, keys, epochs, signal);
  }
  if (audiences.some((audience) => before[audience] !== after[audience]))
    await writeCapabilities(home.capability, after);
}

/** The token as it is, if it will do; else a new one. */
async function renewed(
  token: string | undefined,
  wanted: MintInit,
  keys: KeySource,
  epochs: RevocationEpochs,
  signal: AbortSignal,
): Promise<string> {
  if (token !== undefined && (await isGood(token, wanted, keys, epochs, signal))) return token;
  const epoch = Math.max(sched.wall_ms(), epochs.floor(wanted.subject ?? '-'));
  return (await mint(keys, { ...wanted, epoch }, signal)).token;
}

async function isGood(
  token: string,
  wanted: MintInit,
  keys: KeySource,
  epochs: RevocationEpochs,
  signal: AbortSignal,
): Promise<boolean> {
  const { audience } = wanted;
  const scope = wanted.scopes[0]!;
  try {
    const capability = inspectToken(token);
    const current = await keys.current(audience, signal);
    if (capability.audience !== audience || capability.key_id !== current.key_id) return false;
    if (!wanted.scopes.every((each) => capability.scopes.includes(each))) return false;
    if (capability.expires_ms - sched.wall_ms() <= RENEW_MS) return false;
  } catch {
    return false;
  }
  // The same key id may stand for another key: that of a node whose data was moved away.
  const request = {
    authorization: `Bearer ${token}`,
    scope,
    source_ip: '127.0.0.1',
    facts_later: ['tenant', 'label'],
  } as const;
  return (await new Checker({ audience, keys, epochs }).checkHeaders(request, signal)).ok;
}
