/**
 * Where a command finds a service, and whether the capability may go there.
 *
 * Promise: a capability goes to the services of the node that it belongs to and to nobody else. The one in the node's
 * directory is sent only where that node's service runs now; the one of RON_CAPABILITY_FILE there or to RON_URL. A file that
 * is named with --capability-file is sent to whatever the same command names: that is what naming it is for.
 */
import { defaultPort, type Service } from '@ron/proto';
import { readCapabilityFile } from './capability-file.ts';
import type { CONNECTION_OPTIONS, Values } from './command.ts';
import { CliError } from './exits.ts';
import { homeOf, runningUrl } from './home.ts';
import type { Io } from './io.ts';

/** A service as a command reaches it. */
export interface ResolvedService {
  readonly url: string;
  /** The token, if there is one that may go there. Reading needs none by default. */
  readonly capability: string | undefined;
  /** Where the token was looked for. */
  readonly capability_file: string;
  /** There is a capability, but it belongs elsewhere. */
  readonly isWithheld: boolean;
  /** Whether a `ron up` watches over it: then a service that is away comes back. */
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
  const usual = givenUrl(io.env['RON_URL'] || undefined);
  const asked = givenUrl(values.url) ?? usual;
  const url = asked ?? own ?? `http://127.0.0.1:${defaultPort(service)}`;

  const named = values['capability-file'];
  const fromEnv = io.env['RON_CAPABILITY_FILE'] || undefined;
  const capability_file = named ?? fromEnv ?? home.capability;
  const isItsNode = own !== undefined && isSameOrigin(url, own);
  const isUsual = values.url === undefined || (usual !== undefined && isSameOrigin(url, usual));
  const mayGo = named !== undefined || isItsNode || (fromEnv !== undefined && isUsual);
  const found = await readCapabilityFile(capability_file, service);
  if (found === undefined && (named ?? fromEnv) !== undefined) {
    throw new CliError('permission', `there is no capability for ${service} at ${capability_file}`);
  }
  return {
    url,
    capability: mayGo ? found : undefined,
    capability_file,
    isWithheld: found !== undefined && !mayGo,
    supervised: asked === undefined && own !== undefined,
  };
}

function isSameOrigin(left: string, right: string): boolean {
  return new URL(left).origin === new URL(right).origin;
}

function givenUrl(given: string | undefined): string | undefined {
  if (given === undefined) return undefined;
  if (!URL.canParse(given) || !/^https?:$/.test(new URL(given).protocol)) {
    throw new CliError('usage', `${JSON.stringify(given)} is not a URL like http://127.0.0.1:7101`);
  }
  return given.replace(/\/$/, '');
}
