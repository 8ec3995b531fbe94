/**
 * The configuration keys of a listener, to be spread into the table of a service, and their conversion to `IngressConfig`.
 *
 * Contract: the key names are the public ones (`server.max_inflight`, `read_timeout`, ...); names, defaults,
 * bounds and documentation of the limits come from `LIMITS`. `INGRESS_SEED_KEYS` has the names of the edge specification
 * (`ingress.max_inflight`, `ingress.timeout_secs`, ...) in place of those of the same limits, `INGRESS_RATELIMIT_KEYS` those
 * of the index specification (`ratelimit.per_ip_rps`, `ratelimit.per_ip_burst`).
 *
 *   const schema = defineConfig({ ...INGRESS_KEYS, data_dir: key.text({ doc: '...' }) }, checkIngressKeys);
 *   createIngress({ config: ingressConfigOf(loadConfig({ schema })), ... });
 */
import { configValue, formatDuration, formatRate, formatSize, key } from '@ron/config';
import type { Config, Key } from '@ron/config';
import { SOCKET_PATH_BYTES_MAX } from '@ron/proto';
import { parseBind } from './listen/bind.ts';
import { compileProxies } from './guards/client-ip.ts';
import { INGRESS_DEFAULTS, limitRows, LIMITS, reserveExpected } from './limits.ts';
import type { IngressConfig, IngressLimits, LimitName, LimitRow } from './limits.ts';

const ADDRESS = { pattern: /^(?:unix:.+|.+:\d{1,5})$/, expects: 'host:port, [v6]:port or unix:/path', length_max: 256 };
const SECONDS = '_secs';
const SECOND_MS = 1000;

type Rows = typeof LIMITS;
type OwnName<N extends LimitName> = Rows[N] extends { readonly key: infer K extends string } ? K : never;
type SeedName<N extends LimitName> = Rows[N] extends { readonly seed: { readonly key: infer K extends string } }
  ? K
  : OwnName<N>;

type RatelimitName<N extends LimitName> = Rows[N] extends { readonly ratelimit: infer K extends string }
  ? K
  : OwnName<N>;

type OwnKeys = { readonly [N in LimitName as OwnName<N>]: Key<IngressLimits[N]> };
type RatelimitKeys = { readonly [N in LimitName as RatelimitName<N>]: Key<IngressLimits[N]> };
/** A limit with a specified name has a default. */
type SeedKeys = {
  readonly [N in LimitName as SeedName<N>]: Key<Rows[N] extends { readonly seed: object } ? number : IngressLimits[N]>;
};

type Naming = (row: LimitRow) => { readonly key: string; readonly default: number | undefined } | undefined;

const ownName: Naming = (row) => (row.key === undefined ? undefined : { key: row.key, default: row.default });
const seedName: Naming = (row) => row.seed ?? ownName(row);
const ratelimitName: Naming = (row) =>
  row.ratelimit === undefined ? ownName(row) : { key: row.ratelimit, default: row.default };

function limitKeys(naming: Naming): Record<string, Key<number | undefined>> {
  const keys: Record<string, Key<number | undefined>> = {};
  for (const [, row] of limitRows()) {
    const named = naming(row);
    if (named === undefined) continue;
    if (named.key.endsWith(SECONDS)) keys[named.key] = secondsKey(row, named.default);
    else keys[named.key] = limitKey(row, named.default);
  }
  return keys;
}

function limitKey(row: LimitRow, value: number | undefined): Key<number | undefined> {
  if (value === undefined) return key.optional(unitKey(row, undefined));
  return unitKey(row, value);
}

function unitKey({ unit, min, max, doc }: LimitRow, value: number | undefined): Key<number> {
  const text = (format: (quantity: number) => string) => ({
    ...(value === undefined ? {} : { default: format(value) }),
    min: format(min),
    max: format(max),
    doc,
  });
  if (unit === 'count') return key.integer({ ...(value === undefined ? {} : { default: value }), min, max, doc });
  if (unit === 'bytes') return key.size(text(formatSize));
  return unit === 'ms' ? key.duration(text(formatDuration)) : key.rate(text(formatRate));
}

/** One key for all timeouts of a client. */
function secondsKey(row: LimitRow, value: number | undefined): Key<number | undefined> {
  const doc = 'Seconds for headers, a body, an answer without progress, and the budget of a request.';
  const max = Math.floor(row.max / SECOND_MS);
  return key.integer({ default: value!, min: 1, max, doc });
}

const BIND_KEYS = {
  'server.bind': key.text({ ...ADDRESS, default: INGRESS_DEFAULTS.bind, doc: 'Address of the listener.' }),
  'server.socket': key.optional(
    key.text({
      pattern: /^\/.+/,
      expects: 'an absolute path',
      length_max: 256,
      doc: 'Path of a Unix socket with the same routes, for callers on this machine. Its directory must have mode 0700.',
    }),
  ),
  'server.listen_fd': key.optional(
    key.integer({
      min: 3,
      max: 1024,
      doc: 'Inherited file descriptor of a socket that is bound to server.bind. Set by `ron up`, which keeps the port across restarts.',
    }),
  ),
  metrics_addr: key.optional(
    key.text({ ...ADDRESS, doc: 'Address of a second listener for health, metrics and version.' }),
  ),
};

const POLICY_KEYS = {
  'server.trusted_proxies': key.list({
    default: [],
    doc: 'Addresses or CIDR blocks whose X-Forwarded-For is trusted.',
  }),
  'server.hosts': key.list({ default: [], doc: 'Accepted Host values besides the loopback names.' }),
  'server.open_beyond_loopback': key.boolean({ default: false, doc: 'Serve open reads to other machines.' }),
  'server.access_log': key.boolean({
    default: false,
    doc: 'Log every request. Disables answers before parsing.',
  }),
  'tls.cert_file': key.optional(
    key.text({ doc: 'PEM certificate chain; with key_file it enables TLS. Reloaded on SIGHUP.' }),
  ),
  'tls.key_file': key.optional(key.text({ doc: 'PEM private key.' })),
};

// oxlint-disable-next-line typescript/no-unsafe-type-assertion -- made from the same rows as the type
export const INGRESS_KEYS = { ...BIND_KEYS, ...(limitKeys(ownName) as unknown as OwnKeys), ...POLICY_KEYS };

// oxlint-disable-next-line typescript/no-unsafe-type-assertion -- made from the same rows as the type
export const INGRESS_SEED_KEYS = { ...BIND_KEYS, ...(limitKeys(seedName) as unknown as SeedKeys), ...POLICY_KEYS };

export const INGRESS_RATELIMIT_KEYS = {
  ...BIND_KEYS,
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- made from the same rows as the type
  ...(limitKeys(ratelimitName) as unknown as RatelimitKeys),
  ...POLICY_KEYS,
};

/** For `defineConfig`: checks that involve several keys or parse a value. */
export function checkIngressKeys(
  config: AnyIngressKeyConfig,
  report: (key: CheckedKey, expected: string) => void,
): void {
  if (!isUsable(() => parseBind(config.server.bind))) report('server.bind', BIND_EXPECTED);
  const { listen_fd, socket } = config.server;
  if (socket !== undefined && Buffer.byteLength(socket) > SOCKET_PATH_BYTES_MAX) {
    report('server.socket', `a path of at most ${SOCKET_PATH_BYTES_MAX} bytes`);
  }
  if (listen_fd !== undefined && config.server.bind.startsWith('unix:')) {
    report('server.listen_fd', 'nothing, because server.bind is a Unix socket');
  }
  const { metrics_addr } = config;
  if (metrics_addr !== undefined && !isUsable(() => parseBind(metrics_addr))) report('metrics_addr', BIND_EXPECTED);
  if (!isUsable(() => compileProxies(config.server.trusted_proxies))) {
    report('server.trusted_proxies', 'addresses or CIDR blocks such as 10.0.0.0/8');
  }
  const { cert_file, key_file } = config.tls;
  if (cert_file !== undefined && key_file === undefined) report('tls.key_file', 'a path, because tls.cert_file is set');
  if (cert_file === undefined && key_file !== undefined) report('tls.cert_file', 'a path, because tls.key_file is set');
  const expected = reserveExpected({ ...INGRESS_DEFAULTS, ...limitsOf(config) });
  if (expected !== undefined) report('server.inflight_reserve', expected);
}

type CheckedKey = keyof typeof BIND_KEYS | keyof typeof POLICY_KEYS | 'server.inflight_reserve';

const BIND_EXPECTED = 'host:port with a port up to 65535, [v6]:port or unix:/path';

function isUsable(parse: () => unknown): boolean {
  try {
    parse();
    return true;
  } catch {
    return false;
  }
}

export type IngressKeyConfig = Config<typeof INGRESS_KEYS>;
export type IngressSeedKeyConfig = Config<typeof INGRESS_SEED_KEYS>;
export type IngressRatelimitKeyConfig = Config<typeof INGRESS_RATELIMIT_KEYS>;
/** The keys of a listener, by any of their names. */
export type AnyIngressKeyConfig = IngressKeyConfig | IngressSeedKeyConfig | IngressRatelimitKeyConfig;

export function ingressConfigOf(
  config: AnyIngressKeyConfig,
  override: Partial<IngressConfig> = {},
): Partial<IngressConfig> {
  const { server, tls } = config;
  return {
    bind: server.bind,
    socket: server.socket,
    listen_fd: server.listen_fd,
    metrics_addr: config.metrics_addr,
    ...limitsOf(config),
    trusted_proxies: server.trusted_proxies,
    hosts: server.hosts,
    open_beyond_loopback: server.open_beyond_loopback,
    access_log: server.access_log,
    tls:
      tls.cert_file === undefined || tls.key_file === undefined
        ? undefined
        : { cert_file: tls.cert_file, key_file: tls.key_file },
    ...override,
  };
}

function limitsOf(config: AnyIngressKeyConfig): Partial<IngressLimits> {
  const naming = 'ingress' in config ? seedName : 'ratelimit' in config ? ratelimitName : ownName;
  const limits: Partial<Record<LimitName, number | undefined>> = {};
  for (const [name, row] of limitRows()) {
    const named = naming(row);
    if (named === undefined) continue;
    const value = configValue(config, named.key) as number | undefined;
    limits[name] = value !== undefined && named.key.endsWith(SECONDS) ? value * SECOND_MS : value;
  }
  return limits as Partial<IngressLimits>;
}
