/**
 * The keys of a node and the capabilities of its owner and its services.
 *
 * Contract: with kms, capabilities are minted with keys that kms derives. `ron up` authenticates to kms with the owner's
 * capability, which kms writes to its own directory; no key is written to disk. Without kms there is a root key (0600), and
 * each service has a file with its own keys. `root.cap` holds a token with all scopes for each service. Invalid and
 * expiring capabilities are replaced (renewal.ts); the others stay.
 */
import { DerivedKeySource, FileKeySource, NOTHING_REVOKED } from '@ron/auth';
import { KmsDeriver } from '@ron/auth/service';
import type { Service } from '@ron/proto';
import { readCapabilities, readCapabilityFile, writeCapabilities, type Capabilities } from '../../capability-file.ts';
import { CliError } from '../../exits.ts';
import { socketUrl, type Home } from '../../home.ts';
import { ownerFile, rootWanted } from '../table/capability-files.ts';
import type { ServiceEntry } from '../table/service-entry.ts';
import { renewCalls } from './call-capabilities.ts';
import { renewed, type Minter } from './renewal.ts';

/** Without kms: creates or renews the keys of `table` and the capabilities of its running services. */
export async function prepareKeys(
  home: Home,
  table: readonly ServiceEntry[],
  running: readonly ServiceEntry[],
  signal: AbortSignal,
): Promise<void> {
  await using keys = await FileKeySource.open({ path: home.keys }, signal);
  for (const { name } of table) await keys.writeAudienceFile(home.of(name).keys, name, signal);
  await renewRoot(home, table, { keys, epochs: NOTHING_REVOKED }, signal);
  await renewCalls(home, running, { keys, epochs: NOTHING_REVOKED }, signal);
}

/** Without kms: renews capabilities of a running node, which may run for months. */
export async function renewByKeyFile(home: Home, running: readonly ServiceEntry[], signal: AbortSignal): Promise<void> {
  await using keys = await FileKeySource.open({ path: home.keys, create: false }, signal);
  await renewAll(home, running, { keys, epochs: NOTHING_REVOKED }, signal);
}

/** The keys of all audiences, derived with the owner's capability. */
export function ownerKeys(home: Home, key_service: Service): DerivedKeySource {
  const { path } = ownerFile(home, key_service);
  const capability = async (): Promise<string> => {
    const token = await readCapabilityFile(path, key_service);
    if (token !== undefined) return token;
    throw new CliError('permission', `${key_service} did not write the owner's capability to ${path}`);
  };
  return new DerivedKeySource({ deriver: new KmsDeriver({ url: socketUrl(home, key_service), capability }) });
}

/** Creates or renews the capabilities of the owner and of the services. */
export async function renewAll(
  home: Home,
  running: readonly ServiceEntry[],
  minter: Minter,
  signal: AbortSignal,
): Promise<void> {
  // Those of calls first: starting services wait for them.
  await renewCalls(home, running, minter, signal);
  await renewRoot(home, running, minter, signal);
}

async function renewRoot(
  home: Home,
  services: readonly Pick<ServiceEntry, 'name'>[],
  minter: Minter,
  signal: AbortSignal,
): Promise<void> {
  const found = await readCapabilities(home.capability);
  const before: Capabilities = typeof found === 'object' ? found : {};
  const after: Partial<Record<Service, string>> = { ...before };
  for (const { name } of services) {
    after[name] = await renewed(before[name], rootWanted(name), minter, signal);
  }
  if (services.some(({ name }) => before[name] !== after[name])) await writeCapabilities(home.capability, after);
}
