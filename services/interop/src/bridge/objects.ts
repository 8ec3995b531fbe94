/**
 * `GET /o/{addr}`: reads objects from storage by a reverse proxy.
 *
 * Contract: the answer is that of storage, byte for byte: ranges, conditions, HEAD, proofs. The client's capability and cookies
 * are not forwarded. With `auth.reads` storage gets an exchanged token for this one address. A failure of storage is 503 or 504;
 * a truncated object is detected by the client, because its connection is cut.
 * It needs only storage; with `auth.reads` also passport, for tokens that are not kept. A brownout does not stop reads.
 * Bound: that of `ReverseProxy`. Overflow: 429 `busy`. Cancellation: a client that leaves ends the request to storage.
 */
import { AnswerError } from '@ron/client';
import type { AnswerHeaders, ForwardAnswer, ReverseProxy, RouteContext } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import { checkAddress, type Address } from '@ron/proto';
import type { Upstream } from '../upstreams/upstream.ts';
import { bearerOf } from './bearer.ts';
import { refusalByStorage } from './storage-upload.ts';
import type { TokenExchange } from './token-exchange.ts';

export interface ObjectReadsInit {
  /** With the upstream `storage`. */
  readonly proxy: Pick<ReverseProxy, 'answer'>;
  readonly storage: Pick<Upstream, 'begin'>;
  /** With `auth.reads`; undefined: reads are open. */
  readonly exchange: Pick<TokenExchange, 'forGet' | 'forget'> | undefined;
}

type Context = Pick<RouteContext, 'headers' | 'deadline'> & { readonly params: { readonly addr: string } };

export class ObjectReads {
  readonly #init: ObjectReadsInit;

  constructor(init: ObjectReadsInit) {
    this.#init = init;
  }

  async handle(context: Context): Promise<ForwardAnswer> {
    const { exchange } = this.#init;
    // Storage refuses an address that is not valid itself.
    if (exchange === undefined) return this.#forward({}, () => undefined);
    const address = addressFrom(context.params.addr);
    const client = bearerOf(context);
    const token = await exchange.forGet(client, address, context.deadline);
    return this.#forward({ Authorization: `Bearer ${token}` }, () => exchange.forget(client, address));
  }

  #forward(headers: AnswerHeaders, onRefused: () => void): ForwardAnswer {
    const { proxy, storage, exchange } = this.#init;
    return {
      kind: 'forward',
      send: async (req, res, client) => {
        using call = storage.begin('get');
        const onHead = (
          status: number,
          { 'retry-after': wait }: { readonly 'retry-after'?: string | undefined },
        ): void => {
          if (status === 401) onRefused();
          refuse(status, wait, exchange !== undefined);
          call.answered();
        };
        try {
          await proxy.answer('storage', { headers, onHead }).send(req, res, client);
          call.end();
        } catch (error) {
          throw refusalByStorage(call.fail(error));
        }
      },
    };
  }
}

/** Throws for answers that are not forwarded: failures of storage, and refusals of the token that interop obtained. */
function refuse(status: number, retry_after: string | undefined, isGuarded: boolean): void {
  const isRefused = status === 401 || status === 403;
  if (!isRefused && status !== 429 && status < 500) return;
  if (isRefused && !isGuarded) {
    throw new RonError('not_ready', 'storage requires capabilities for reads: set auth.reads of interop', {
      op: 'get',
      reason: 'DOWNSTREAM_UNAVAILABLE',
    });
  }
  const retry_after_ms = /^\d{1,6}$/.test(retry_after ?? '') ? Number(retry_after) * 1000 : undefined;
  const code = isRefused ? (status === 401 ? 'unauthorized' : 'forbidden') : status === 429 ? 'busy' : 'not_ready';
  throw new AnswerError(code, 'it refuses the read', { op: 'get', http_status: status, retry_after_ms });
}

function addressFrom(text: string): Address {
  const checked = checkAddress(text);
  if (!checked.ok) throw new RonError('bad_request', checked.problem);
  return checked.address;
}
