/**
 * Opens the bridge to storage: writes, reads, and the exchange of capabilities that both need.
 *
 * Contract: without storage or passport the parts exist and refuse with 503. Bound: the channel `forwarded_reads`, half of it for
 * one address: a forwarded read holds no worker while its client reads; the channels `put_requests` and `put_streams`.
 * Cancellation: closing the resources ends forwarded reads.
 */
import { reachPrivately } from '@ron/client/node';
import { limitQueueWait, ReverseProxy } from '@ron/ingress';
import { RonError, type WorkQueue } from '@ron/kernel';
import type { InteropContext } from '../service.ts';
import { CapabilityFile } from '../upstreams/capability-file.ts';
import { budgetOf, type Upstreams } from '../upstreams/open-upstreams.ts';
import { ObjectReads } from './objects.ts';
import { PassportExchange } from './passport-exchange.ts';
import { PutBridge } from './put.ts';
import { PutSlots } from './put-slots.ts';
import { TokenExchange } from './token-exchange.ts';

const UNIX = 'unix:';
const NO_FILE = 'interop.passport_capability_file is not set';
const NO_FILE_INIT = { op: 'exchange', reason: 'DOWNSTREAM_UNAVAILABLE' } as const;
/** Of `put_streams`: 64 streams for one subject, as many as are measured together. The rest of the workers takes whole bodies. */
const STREAMS_SHARE = 2 / 3;
const REQUESTS_SHARE = 1 / 2;
/** Of a body with a content coding, decoded; the listener may have a lower limit. */
const DECODED_BYTES_MAX = 10 * 1024 * 1024;

type Context = Pick<InteropContext, 'config' | 'runtime' | 'resources'>;
type Calls = Pick<Upstreams, 'storage' | 'passport' | 'sentinel' | 'connect_ms'>;

export function openBridge(context: Context, upstreams: Calls, puts: WorkQueue) {
  const { config, runtime, resources } = context;
  const { storage, sentinel, connect_ms } = upstreams;
  const { storage_url, put_bytes_max: bytes_max } = config.interop;
  const socketPath = storage_url?.slice(UNIX.length);
  const decoded_bytes_max = Math.min(DECODED_BYTES_MAX, config.server.decompress_abs_bytes);
  const stall_ms = config.write_timeout;
  const own = openPassportExchange(config, connect_ms);
  const exchange = resources.use(openExchange(context, upstreams, own));
  const newProxy = (requests_max: number): ReverseProxy =>
    new ReverseProxy({
      upstreams: { storage: () => (socketPath === undefined ? undefined : { socketPath }) },
      requests_max,
      connect_ms,
      head_ms: budgetOf(runtime.deadline('request')),
      stall_ms,
    });
  const proxy = resources.use(runtime.own('forwarded_reads', newProxy));
  const slots = (what: string, share: number) => (capacity: number) => new PutSlots({ capacity, share, what });
  const requests = runtime.own('put_requests', slots('/put requests', REQUESTS_SHARE));
  const streams = runtime.own('put_streams', slots('streams of /put', STREAMS_SHARE));
  const put = new PutBridge({
    storage,
    exchange,
    requests,
    streams,
    pool: limitQueueWait(puts, () => runtime.deadline('request')),
    socketPath: socketPath ?? '',
    shed: () => (sentinel.shedsPut ? 'the bridge sheds writes in a brownout: see GET /admin/brownout' : undefined),
    bytes_max,
    decoded_bytes_max,
    requestDeadline: (parent) => runtime.deadline('request', { parent }),
    connect_ms,
    write_ms: stall_ms,
    onWriteTimeout: () => runtime.io_timeouts.at('write').inc(),
  });
  const objects = new ObjectReads({ proxy, storage, exchange: config.auth.reads ? exchange : undefined });
  const problems = {
    slots: () => requests.problem ?? streams.problem,
    passport: () => (own === undefined ? NO_FILE : own.problem),
  };
  return { put, objects, bytes_max, decoded_bytes_max, problems };
}

function openExchange({ runtime }: Context, { passport }: Calls, own: PassportExchange | undefined): TokenExchange {
  return new TokenExchange({
    passport,
    exchange: (request, signal) =>
      own === undefined
        ? Promise.reject(new RonError('not_ready', NO_FILE, NO_FILE_INIT))
        : own.exchange(request, signal),
    retry: (work, within) => runtime.retry('exchange', work, within),
    deadline: (within) => runtime.deadline('passport', within),
  });
}

function openPassportExchange({ auth, interop }: Context['config'], connect_ms: number): PassportExchange | undefined {
  const { passport_url: url, passport_pin: pin } = auth;
  const { passport_capability_file: path } = interop;
  if (url === undefined || path === undefined) return undefined;
  return new PassportExchange({ way: reachPrivately(url, pin), file: new CapabilityFile(path), connect_ms });
}
