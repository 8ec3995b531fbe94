/**
 * A client of interop: providers of webhooks, their deliveries and receipts, brownout, and objects through the bridge.
 *
 * Contract: `put` succeeds only if the service states the address that was computed here; every byte that `get` yields is
 * proven against the address. A receipt is returned as the service states it: verify it with the key of the node. Secrets are
 * only sent. Reads, `putProvider`, `removeProvider`, `setBrownout` and a `put` of a rereadable body are retried; `rotate` and
 * `test` are sent once, because they may have taken effect before their answer was lost.
 * Bound: answers as in JsonCalls, one event, one chunk of an upload, and for `get` as in StorageClient.
 * Cancellation: by the signal of each call and of the client.
 *
 *     const interop = new InteropClient({ ...reachPrivately('unix:/srv/ron/run/interop.sock'), capability });
 *     await interop.putProvider('github', { scheme: 'github', secret });
 *     for await (const event of interop.events({ signal })) if (event.kind === 'delivery') show(event.delivery);
 */
import { POLICIES, RonError } from '@ron/kernel/core';
import type {
  AcceptedWebhook,
  Address,
  BrownoutDto,
  BrownoutRequest,
  DeliveriesPage,
  DeliveryDto,
  WebhookProviderDto,
  ProviderListDto,
  ProviderRequest,
  Receipt,
  RotateRequest,
  SignedReceipt,
} from '@ron/proto';
import type { Answer } from './answer.ts';
import { isReplayable, replayable, streamOf, type PutBody } from './body.ts';
import { readEvents } from './event-reader.ts';
import { jsonBody, JsonCalls, readJson } from './json-calls.ts';
import { addressOf } from './object-hasher.ts';
import type { OnProgress } from './progress.ts';
import { queryOf } from './query.ts';
import { receiptOf } from './receipt.ts';
import { Stall } from './stall.ts';
import type { CallOptions } from './storage-client.ts';
import { sendStreamed } from './streamed-upload.ts';
import { keepAlive, Transport, unreachable, type TransportInit } from './transport.ts';
import { readVerified, type ReadInit } from './verified-read.ts';

/** An item of `events`. */
export type HookEvent =
  /** Connected: later deliveries follow. Earlier ones are listed by `deliveries`. */
  | { readonly kind: 'open' }
  | { readonly kind: 'delivery'; readonly delivery: DeliveryDto }
  /** The reader was too slow: `lost` deliveries are missing. `deliveries` lists them. */
  | { readonly kind: 'lag'; readonly lost: number };

export interface BridgePutInit extends CallOptions {
  readonly media_type?: string | undefined;
  /** The address of a body that is streamed, if it is known. Interop then gets a token for these bytes only. */
  readonly address?: Address | undefined;
  readonly onProgress?: OnProgress | undefined;
}

const PROVIDERS = 'admin/providers';
/** A quiet stream carries a comment every 15 s. */
const QUIET_MS = 45_000;
/** `?wait=1` is answered within 2 s. */
const RECEIPT_WAIT_MS = 2000;

export class InteropClient {
  readonly #transport: Transport;
  readonly #calls: JsonCalls;

  constructor(init: TransportInit) {
    this.#transport = new Transport(init);
    this.#calls = new JsonCalls('', init);
  }

  get url(): string {
    return this.#transport.base.href;
  }

  /** All providers with their secrets' versions, never their values. */
  async providers(init: CallOptions = {}): Promise<readonly WebhookProviderDto[]> {
    return (await this.#get<ProviderListDto>('providers', PROVIDERS, init)).providers;
  }

  /** Rejects with `not_found` if the provider does not exist. */
  async provider(name: string, init: CallOptions = {}): Promise<WebhookProviderDto> {
    return await this.#get('provider', pathOf(name), init);
  }

  /** Creates a provider, or replaces it. Without a secret it keeps its secrets; a new one ends the others at once. */
  async putProvider(name: string, request: ProviderRequest, init: CallOptions = {}): Promise<WebhookProviderDto> {
    return required(
      'put_provider',
      await this.#calls.put<WebhookProviderDto>('put_provider', pathOf(name), request, init.signal),
    );
  }

  async removeProvider(name: string, init: CallOptions = {}): Promise<void> {
    await this.#calls.delete('remove_provider', pathOf(name), init.signal);
  }

  /** Adds a secret. The previous one stays valid for the overlap. */
  async rotate(name: string, request: RotateRequest, init: CallOptions = {}): Promise<WebhookProviderDto> {
    return await this.#once('rotate', `${pathOf(name)}/rotate`, request, init);
  }

  /** Delivers a signed sample with the header `ron-test`. */
  async test(name: string, init: CallOptions = {}): Promise<AcceptedWebhook> {
    return await this.#once('test', `${pathOf(name)}/test`, undefined, init);
  }

  async brownout(init: CallOptions = {}): Promise<BrownoutDto> {
    return await this.#get('brownout', 'admin/brownout', init);
  }

  async setBrownout(request: BrownoutRequest, init: CallOptions = {}): Promise<BrownoutDto> {
    return required('brownout', await this.#calls.put<BrownoutDto>('brownout', 'admin/brownout', request, init.signal));
  }

  /** Recent deliveries, the oldest first. */
  async deliveries(
    { after, limit }: { readonly after?: number | undefined; readonly limit?: number | undefined } = {},
    init: CallOptions = {},
  ): Promise<DeliveriesPage> {
    return await this.#get('deliveries', `admin/deliveries${queryOf({ after, limit })}`, init);
  }

  /**
   * Deliveries as they happen. Ends when the service drains; a broken or silent connection throws. Connecting again is the
   * caller's business.
   */
  async *events(init: CallOptions = {}): AsyncGenerator<HookEvent, void, void> {
    using _ = keepAlive();
    using stall = new Stall('events', this.#transport.deadline_ms, this.#transport.signalFor(init.signal));
    const { signal } = stall;
    const headers = { Accept: 'text/event-stream' };
    const answer = await this.#transport.send('events', 'admin/events', { method: 'GET', headers, signal });
    if (answer.headers.get('content-type') !== 'text/event-stream' || answer.body === null) {
      await answer.body?.cancel();
      throw wrong('events', 'it is not an event stream');
    }
    try {
      stall.pause();
      yield { kind: 'open' };
      stall.beat(QUIET_MS);
      for await (const { event, data } of readEvents(answer.body, () => stall.beat(QUIET_MS))) {
        const known = eventOf(event, data);
        if (known === undefined) continue;
        // The time of the consumer does not count against the server.
        stall.pause();
        yield known;
        stall.beat(QUIET_MS);
      }
    } catch (error) {
      throw unreachable(error, 'events', this.#transport.shown_url, signal);
    }
  }

  /** Undefined while the receipt is not signed. With `wait`, the service waits up to 2 s for the signature. */
  async receipt(
    id: string,
    { wait = false, ...init }: CallOptions & { readonly wait?: boolean } = {},
  ): Promise<SignedReceipt | undefined> {
    const path = `receipts/${encodeURIComponent(id)}${queryOf({ wait: wait ? 1 : undefined })}`;
    const work = async (signal: AbortSignal): Promise<SignedReceipt | undefined> => {
      const answer = await this.#transport.send('receipt', path, { method: 'GET', signal });
      const receipt = await readJson<SignedReceipt>(answer, 'receipt');
      return answer.status === 202 ? undefined : required('receipt', receipt);
    };
    const wait_ms = wait ? RECEIPT_WAIT_MS : 0;
    return await this.#transport.call('receipt', work, { signal: init.signal, wait_ms });
  }

  /** Stores an object through the bridge, and returns the receipt of storage. */
  async put(body: PutBody, init: BridgePutInit = {}): Promise<Receipt> {
    if (!isReplayable(body))
      return await this.#put(streamOf(body), undefined, init, this.#transport.signalFor(init.signal));
    const address = body instanceof Uint8Array ? addressOf(body) : init.address;
    const source = replayable(body);
    const work = (signal: AbortSignal): Promise<Receipt> =>
      this.#put(source.read(0), source.size, { ...init, address }, signal);
    return await this.#transport.call('put', work, { signal: init.signal, body_bytes: source.size });
  }

  /** The bytes of an object, or of a range of it, each proven before it is yielded. */
  get(address: Address, init: ReadInit = {}): AsyncGenerator<Uint8Array, void, void> {
    return readVerified(this.#transport, address, init);
  }

  async #put(
    chunks: AsyncIterable<Uint8Array>,
    total_bytes: number | undefined,
    { media_type, address, onProgress }: BridgePutInit,
    signal: AbortSignal,
  ): Promise<Receipt> {
    const sent = await sendStreamed(this.#transport, 'put', chunks, {
      method: 'POST',
      path: 'put',
      headers: {
        'Content-Type': media_type ?? 'application/octet-stream',
        ...(address !== undefined && { 'X-Content-B3': address }),
      },
      total_bytes,
      onProgress,
      signal,
    });
    return await receiptOf(sent.response, sent.address);
  }

  async #get<T>(op: string, path: string, init: CallOptions): Promise<T> {
    return required(op, await this.#calls.get<T>(op, path, init.signal));
  }

  /** A POST that is not retried. */
  async #once<T>(op: string, path: string, body: unknown, init: CallOptions): Promise<T> {
    const work = async (signal: AbortSignal): Promise<T> => {
      const typed = body === undefined ? {} : jsonBody(body);
      const answer: Answer = await this.#transport.send(op, path, { method: 'POST', ...typed, signal });
      return required(op, await readJson<T>(answer, op));
    };
    return await this.#transport.call(op, work, { signal: init.signal, policy: POLICIES.once });
  }
}

const pathOf = (name: string): string => `${PROVIDERS}/${encodeURIComponent(name)}`;

function required<T>(op: string, answer: T | undefined): T {
  if (answer === undefined) throw wrong(op, 'it is empty');
  return answer;
}

/** Undefined for an event that this version does not know. */
function eventOf(event: string, data: string): HookEvent | undefined {
  if (event !== 'delivery' && event !== 'lag') return undefined;
  try {
    const value: unknown = JSON.parse(data);
    if (typeof value === 'object' && value !== null) {
      if (event === 'delivery' && 'seq' in value && Number.isSafeInteger(value.seq))
        return { kind: 'delivery', delivery: value as DeliveryDto };
      if (event === 'lag' && 'lost' in value && Number.isSafeInteger(value.lost))
        return { kind: 'lag', lost: value.lost as number };
    }
  } catch {
    // Reported below.
  }
  throw wrong('events', `the data of an event "${event}" is malformed`);
}

const wrong = (op: string, problem: string): RonError =>
  new RonError('integrity', `interop sent a wrong answer: ${problem}`, { op });
