/**
 * Resolves the URL of a service and the capability that a command may send to it.
 *
 * Contract: a capability is sent only to the node that it belongs to. `root.cap` in the node's directory is sent only to a
 * running service of that node; the file in RON_CAPABILITY_FILE to such a service or to RON_URL. A file that is named with
 * --capability-file is sent to the URL of the same command: naming it is the user's consent. The own node is called at its
 * socket, even if its URL was given or it is stopped: no TCP port is called that the user did not name. Another place must be
 * `unix:PATH`, or `https://` with a pin; a command that would send a capability anywhere else is refused, because any user of
 * a machine can listen at a free port.
 */
import { isPrivate, PIN_PATTERN } from '@ron/client/node';
import type { Service } from '@ron/proto';
import { readCapabilityFile } from './capability-file.ts';
import type { CONNECTION_OPTIONS, Values } from './command.ts';
import { CliError } from './exits.ts';
import { homeOf, runningService, socketUrl } from './home.ts';
import type { Io } from './io.ts';
import { requireOwnSocket } from './own-directory.ts';

/** A service with the connection data of a command. */
export interface ResolvedService {
  /** `unix:PATH`, or a URL. */
  readonly url: string;
  /** The hash of the public key of an https server. */
  readonly pin: string | undefined;
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
  const own = await runningService(home, service);
  const default_url = checkedUrl(io.env['RON_URL'] || undefined);
  const given = checkedUrl(values.url) ?? default_url;
  const isOwnNode = own !== undefined && (given === undefined || [own.url, own.socket_url].some(isSamePlace(given)));
  // A directory that another user prepared must not pass for the own node.
  if (isOwnNode || given === undefined) await requireOwnSocket(home, service);
  const url = isOwnNode ? own.socket_url : (given ?? socketUrl(home, service));
  const pin = checkedPin(values.pin ?? (io.env['RON_TLS_PIN'] || undefined));

  const named = values['capability-file'];
  const fromEnv = io.env['RON_CAPABILITY_FILE'] || undefined;
  const capability_file = named ?? fromEnv ?? home.capability;
  const isDefaultUrl = default_url !== undefined && given !== undefined && isSamePlace(given)(default_url);
  const maySend =
    isOwnNode || (given !== undefined && (named !== undefined || (fromEnv !== undefined && isDefaultUrl)));
  const found = await readCapabilityFile(capability_file, service);
  if (found === undefined && (named ?? fromEnv) !== undefined) {
    throw new CliError('permission', `no capability for ${service} in ${capability_file}`);
  }
  if (found !== undefined && maySend && !isPrivate(url, pin)) {
    throw new CliError(
      'permission',
      `refusing to send a capability to ${url}, where any process can listen: use unix:PATH, or https:// and --pin`,
    );
  }
  return {
    url,
    pin,
    capability: maySend ? found : undefined,
    capability_file,
    isWithheld: found !== undefined && !maySend,
    supervised: given === undefined && own !== undefined,
  };
}

const isSamePlace =
  (left: string) =>
  (right: string): boolean =>
    left === right || (isHttp(left) && isHttp(right) && new URL(left).origin === new URL(right).origin);

const isHttp = (url: string): boolean => /^https?:/i.test(url);

function checkedUrl(given: string | undefined): string | undefined {
  if (given === undefined || /^unix:\/./.test(given)) return given;
  if (!URL.canParse(given) || !isHttp(given)) {
    throw new CliError(
      'usage',
      `${JSON.stringify(given)} is not a valid URL, for example http://127.0.0.1:7101 or unix:/srv/ron/run/storage.sock`,
    );
  }
  return given.replace(/\/$/, '');
}

function checkedPin(pin: string | undefined): string | undefined {
  if (pin === undefined || PIN_PATTERN.test(pin)) return pin;
  throw new CliError('usage', '--pin must be the SHA-256 of a public key (SPKI) in base64 or hex');
}
