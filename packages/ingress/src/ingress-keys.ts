/**
 * The configuration keys of a listener, to be spread into the table of a service, and their way into `IngressConfig`.
 *
 * Promise: the key names are those that operators know (`server.max_inflight`, `read_timeout`, ...); defaults are the
 * listener's own. A service that names some of them otherwise overrides them in `ingressConfigOf`'s second argument.
 */
import { formatDuration, formatRate, formatSize, key } from '@ron/kernel';
import type { Config } from '@ron/kernel';
import { parseBind } from './bind.ts';
import { compileProxies } from './client-ip.ts';
import { INGRESS_DEFAULTS } from './limits.ts';
import type { IngressConfig } from './limits.ts';

const D = INGRESS_DEFAULTS;
const ADDRESS = { pattern: /^(?:unix:.+|.+:\d{1,5})$/, expects: 'host:port, [v6]:port or unix:/path', length_max: 256 };

export const INGRESS_KEYS = {
  'server.bind': key.text({ ...ADDRESS, default: D.bind, doc: 'Where the service listens.' }),
  metrics_addr: key.optional(key.text({ ...ADDRESS, doc: 'A port of their own for health, metrics and version.' })),
  'server.max_inflight': key.integer({
    default: D.max_inflight,
    min: 1,
    max: 65_536,
    doc: 'Requests that execute or stream at once; more get 429.',
  }),
  'server.inflight_reserve': key.optional(
    key.integer({
      min: 0,
      max: 65_535,
      doc: 'Places of max_inflight that only services of this node can take. Default: a sixteenth, at least 4.',
    }),
  ),
  'server.inflight_per_ip': key.optional(
    key.integer({
      min: 1,
      max: 65_536,
      doc: 'Requests in flight or queued of one address; more get 429. Default: half of max_inflight.',
    }),
  ),
  'server.max_rps_per_ip': key.optional(
    key.integer({ min: 1, max: 1_000_000, doc: 'Requests per second of one address; more get 429.' }),
  ),
  'server.rps_burst_per_ip': key.optional(
    key.integer({
      min: 1,
      max: 1_000_000,
      doc: 'Requests of one address above its rate at once. Default: half of it.',
    }),
  ),
  'server.parked_max': key.integer({
    default: D.parked_max,
    min: 1,
    max: 1_000_000,
    doc: 'Requests that wait for an event; more get 429.',
  }),
  'server.events_max': key.integer({
    default: D.events_max,
    min: 1,
    max: 1_000_000,
    doc: 'Open event streams; more get 429.',
  }),
  'server.max_rps': key.optional(key.integer({ min: 1, max: 1_000_000, doc: 'Requests per second; more get 429.' })),
  'server.rps_burst': key.integer({
    default: D.rps_burst,
    min: 1,
    max: 1_000_000,
    doc: 'Requests above the rate at once.',
  }),
  max_conns: key.integer({ default: D.max_conns, min: 1, max: 1_000_000, doc: 'Open connections in all.' }),
  'server.connection_limit_per_ip': key.integer({
    default: D.connection_limit_per_ip,
    min: 1,
    max: 1_000_000,
    doc: 'Open connections of one address; calls that carry a capability do not count.',
  }),
  'server.header_bytes': key.size({
    default: formatSize(D.header_bytes_max),
    min: '1KiB',
    max: '1MiB',
    doc: 'Request line and headers.',
  }),
  'server.body_bytes': key.size({
    default: formatSize(D.body_bytes_max),
    min: '1KiB',
    max: '64MiB',
    doc: 'A buffered body.',
  }),
  'server.decompress_max_ratio': key.integer({
    default: D.decompress_max_ratio,
    min: 1,
    max: 1000,
    doc: 'Decoded bytes per encoded byte.',
  }),
  'server.decompress_abs_bytes': key.size({
    default: formatSize(D.decompress_abs_bytes),
    min: '1KiB',
    max: '1GiB',
    doc: 'Decoded bytes of a compressed body.',
  }),
  'server.header_timeout': key.duration({
    default: formatDuration(D.header_timeout_ms),
    min: '10ms',
    max: '5m',
    doc: 'Until the headers are complete.',
  }),
  read_timeout: key.duration({
    default: formatDuration(D.read_timeout_ms),
    min: '10ms',
    max: '5m',
    doc: 'A buffered body in total; a streamed one without progress.',
  }),
  write_timeout: key.duration({
    default: formatDuration(D.write_timeout_ms),
    min: '10ms',
    max: '5m',
    doc: 'An answer that nobody reads.',
  }),
  idle_timeout: key.duration({
    default: formatDuration(D.idle_timeout_ms),
    min: '10ms',
    max: '1h',
    doc: 'A connection between two requests.',
  }),
  'server.rate_min': key.rate({
    default: formatRate(D.rate_bytes_per_s_min),
    doc: 'Streamed bodies and answers that are slower than this on average are cut.',
  }),
  'server.request_deadline': key.duration({
    default: formatDuration(D.request_deadline_ms),
    min: '10ms',
    max: '1h',
    doc: 'Budget of a request.',
  }),
  'server.trusted_proxies': key.list({
    default: [],
    doc: 'Addresses or CIDR blocks whose X-Forwarded-For is believed.',
  }),
  'server.hosts': key.list({ default: [], doc: 'Host values to answer for besides the loopback names.' }),
  'server.open_beyond_loopback': key.boolean({ default: false, doc: 'Serve open reads to other machines.' }),
  'server.access_log': key.boolean({
    default: false,
    doc: 'Log every request. Then none is answered before it is parsed.',
  }),
  'tls.cert_file': key.optional(
    key.text({ doc: 'PEM certificate chain; with key_file turns TLS on. Read again on SIGHUP.' }),
  ),
  'tls.key_file': key.optional(key.text({ doc: 'PEM private key.' })),
} as const;

/** For `defineConfig`'s check: what no single key can know. */
export function checkIngressKeys(config: IngressKeyConfig, report: (key: CheckedKey, expected: string) => void): void {
  if (!isUsable(() => parseBind(config.server.bind))) report('server.bind', BIND_EXPECTED);
  const { metrics_addr } = config;
  if (metrics_addr !== undefined && !isUsable(() => parseBind(metrics_addr))) report('metrics_addr', BIND_EXPECTED);
  if (!isUsable(() => compileProxies(config.server.trusted_proxies))) {
    report('server.trusted_proxies', 'addresses or CIDR blocks such as 10.0.0.0/8');
  }
  const { cert_file, key_file } = config.tls;
  if (cert_file !== undefined && key_file === undefined) report('tls.key_file', 'a path, because tls.cert_file is set');
  if (cert_file === undefined && key_file !== undefined) report('tls.cert_file', 'a path, because tls.key_file is set');
}

type CheckedKey = 'server.bind' | 'metrics_addr' | 'server.trusted_proxies' | 'tls.cert_file' | 'tls.key_file';

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

export function ingressConfigOf(
  config: Config<typeof INGRESS_KEYS>,
  override: Partial<IngressConfig> = {},
): Partial<IngressConfig> {
  const { server, tls } = config;
  return {
    bind: server.bind,
    metrics_addr: config.metrics_addr,
    max_inflight: server.max_inflight,
    inflight_reserve: server.inflight_reserve,
    inflight_per_ip_max: server.inflight_per_ip,
    rps_limit_per_ip: server.max_rps_per_ip,
    rps_burst_per_ip: server.rps_burst_per_ip,
    parked_max: server.parked_max,
    events_max: server.events_max,
    rps_limit: server.max_rps,
    rps_burst: server.rps_burst,
    max_conns: config.max_conns,
    connection_limit_per_ip: server.connection_limit_per_ip,
    header_bytes_max: server.header_bytes,
    body_bytes_max: server.body_bytes,
    decompress_max_ratio: server.decompress_max_ratio,
    decompress_abs_bytes: server.decompress_abs_bytes,
    header_timeout_ms: server.header_timeout,
    read_timeout_ms: config.read_timeout,
    write_timeout_ms: config.write_timeout,
    idle_timeout_ms: config.idle_timeout,
    rate_bytes_per_s_min: server.rate_min,
    request_deadline_ms: server.request_deadline,
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
