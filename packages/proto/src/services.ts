/**
 * The services of the network. A service's name is also the audience of the capabilities that it accepts, its table in
 * `ron.toml` and its label in metrics, so it is defined only here.
 */

export const SERVICES = ['storage', 'index', 'edge', 'interop', 'kms', 'mailbox', 'passport'] as const;

export type Service = (typeof SERVICES)[number];

/** The first port of a node: the console listens on it. */
export const BASE_PORT_DEFAULT = 7100;

/** The offset of each service from the base port. The console has 0. */
const PORT_OFFSET: Readonly<Record<Service, number>> = {
  storage: 1,
  index: 2,
  edge: 3,
  interop: 4,
  kms: 5,
  mailbox: 6,
  passport: 7,
};

const KNOWN: ReadonlySet<string> = new Set(SERVICES);

export function isService(name: unknown): name is Service {
  return typeof name === 'string' && KNOWN.has(name);
}

/** The port on which a service listens unless it is configured otherwise. */
export function defaultPort(service: Service, base_port: number = BASE_PORT_DEFAULT): number {
  return base_port + PORT_OFFSET[service];
}

/** The longest path of a Unix socket: `sun_path` of Linux without its terminator. */
export const SOCKET_PATH_BYTES_MAX = 107;
