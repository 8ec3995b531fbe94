/**
 * Opens the bridge to storage: writes, reads, and the exchange of capabilities that both need.
 *
 * Contract: without storage or passport the parts exist and refuse with 503. Bound: the channel `forwarded_reads`, half of it for
 * one address: a forwarded read holds no worker while its client reads. Cancellation: closing the resources ends forwarded reads.
 */
import { reachPrivately } from '@ron/client/node';
import { ReverseProxy } from '@ron/ingress';
import { RonError, type Deadline } from '@ron/kernel';
import type { InteropContext } from '../service.ts';
import { CapabilityFile } from '../upstreams/capability-file.ts';
import type { Upstreams } from '../upstreams/open-upstreams.ts';
import { ObjectReads } from './objects.ts';
import { exchangeByPassport, type ExchangeOnce } from './passport-exchange.ts';
import { PutBridge } from './put.ts';
import { TokenExchange } from './token-exchange.ts';

const UNIX = 'unix:';
/** Of a body with a content coding, decoded; the listener may have a lower limit. */
const DECODED_BYTES_MAX = 10 * 1024 * 1024;

type Context = Pick<InteropContext, 'config' | 'runtime' | 'resources'>;
type Calls = Pick<Upstreams, 'storage' | 'passport' | 'sentinel' | 'connect_ms'>;

export function openBridge(context: Context, upstreams: Calls) {
  const { config, runtime, resources } = context;
  const { storage, sentinel, connect_ms } = upstreams;
  const { storage_url, put_bytes_max: bytes_max } = config.interop;
  const socketPath = storage_url?.slice(UNIX.length);
  const decoded_bytes_max = Math.min(DECODED_BYTES_MAX, config.server.decompress_abs_bytes);
  const stall_ms = config.write_timeout;
  const exchange = resources.use(openExchange(context, upstreams));
  const newProxy = (requests_max: number): ReverseProxy =>
    new ReverseProxy({
      upstreams: { storage: () => (socketPath === undefined ? undefined : { socketPath }) },
      requests_max,
      connect_ms,
      head_ms: budgetOf(runtime.deadline('request')),
      stall_ms,
    });
  const proxy = resources.use(runtime.own('forwarded_reads', newProxy));
  const put = new PutBridge({
    storage,
    exchange,
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
  return { put, objects, bytes_max, decoded_bytes_max };
}

function openExchange({ config, runtime }: Context, { passport, connect_ms }: Calls): TokenExchange {
  return new TokenExchange({
    passport,
    exchange: exchangeOf(config, connect_ms),
    retry: (work, within) => runtime.retry('exchange', work, within),
    deadline: (within) => runtime.deadline('passport', within),
  });
}

function exchangeOf({ auth, interop }: Context['config'], connect_ms: number): ExchangeOnce {
  const { passport_url: url, passport_pin: pin } = auth;
  const { passport_capability_file: path } = interop;
  if (url === undefined || path === undefined) {
    const init = { op: 'exchange', reason: 'DOWNSTREAM_UNAVAILABLE' };
    return () => Promise.reject(new RonError('not_ready', 'interop.passport_capability_file is not set', init));
  }
  return exchangeByPassport({ way: reachPrivately(url, pin), file: new CapabilityFile(path), connect_ms });
}

function budgetOf(deadline: Deadline): number {
  using own = deadline;
  return own.budget_ms;
}
