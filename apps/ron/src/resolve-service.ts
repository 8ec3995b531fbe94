/**
 * Resolves the URL of a service and the capability that a command may send to it.
 *
 * Contract: a capability is sent only to the node that it belongs to. `root.cap` in the node's directory is sent only to a
 * running service of that node; the file in RON_CAPABILITY_FILE to such a service or to RON_URL. A file that is named with
 * --capability-file is sent to the URL of the same command: naming it is the user's consent.
 */
import { defaultPort, type Service } from '@ron/proto';
import { readCapabilityFile } from './capability-file.ts';
import type { CONNECTION_OPTIONS, Values } from './command.ts';
import { CliError } from './exits.ts';
import { homeOf, runningUrl } from './home.ts';
import type { Io } from './io.ts';

/** A service with the connection data of a command. */
export interface ResolvedService {
  readonly url: string;
  /** The token, if there is one that may be sent. By default, reads need none. */
  readonly capability: string | undefined;
  /** The file that should hold the token. */
  readonly capability_file: string;
  /** There is a capability, but it belongs to another node. */
  readonly isWithheld: boolean;
  /** Whether `ron up` supervises the service and restarts it after a crash. */
  readonly supervised: boolean;
}

export type ConnectionValues = Values<typeof CONNECTION_OPTIONS>;

export async function resolveService(
  service: Service,
  values: ConnectionValues,
  io: Pick<Io, 'env'>,
): Promise<ResolvedService> {
  const home = homeOf(values, io);
  const own = await runningUrl(home, service);
  const default_url = checkedUrl(io.env['RON_URL'] || undefined);
  const given = checkedUrl(values.url) ?? default_url;
  const url = given ?? own ?? `http://127.0.0.1:${defaultPort(service)}`;

  const named = values['capability-file'];
  const fromEnv = io.env['RON_CAPABILITY_FILE'] || undefined;
  const capability_file = named ?? fromEnv ?? home.capability;
  const isOwnNode = own !== undefined && isSameOrigin(url, own);
  const isDefaultUrl = values.url === undefined || (default_url !== undefined && isSameOrigin(url, default_url));
  const maySend = named !== undefined || isOwnNode || (fromEnv !== undefined && isDefaultUrl);
  const found = await readCapabilityFile(capability_file, service);
  if (found === undefined && (named ?? fromEnv) !== undefined) {
    throw new CliError('permission', `no capability for ${service} in ${capability_file}`);
  }
  return {
    url,
    capability: maySend ? found : undefined,
    capability_file,
    isWithheld: found !== undefined && !maySend,
    supervised: given === undefined && own !== undefined,
  };
}

function isSameOrigin(left: string, right: string): boolean {
  return new URL(left).origin === new URL(right).origin;
}

function checkedUrl(given: string | undefined): string | undefined {
  if (given === undefined) return undefined;
  if (!URL.canParse(given) || !/^https?:$/.test(new URL(given).protocol)) {
    throw new CliError('usage', `${JSON.stringify(given)} is not a valid URL, for example http://127.0.0.1:7101`);
  }
  return given.replace(/\/$/, '');
}
