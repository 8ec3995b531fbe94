/**
 * `POST /put`: stores a body in storage for a client of the bridge.
 *
 *     capability, rate, brownout, slot --> up to 1 MiB and declared: whole body, address known --> worker --> exchange --> storage
 *                                      `-> otherwise: slot of a stream --> worker --> exchange --> storage, in chunks of 64 KiB;
 *                                          the last one only after the capability holds for the whole body
 *
 * Contract: the token for storage is bound to the address of the body: computed if the body is complete in memory, stated by the
 * client (`X-Content-B3`) for a stream; otherwise to its declared or largest length. A body that the client's capability or the
 * stated address does not allow is never complete at storage, which then stores nothing; nor is one whose client leaves. The
 * receipt is passed on only if it names the address that was computed here.
 * Bound: a whole body has at most `WHOLE_BYTES_MAX`, a stream two chunks: the one that storage takes and the one after it.
 * The client is read at the pace of storage. A client that sends slowly holds neither a permit of the listener nor, for a whole
 * body, a worker; it holds one of the slots, of which its subject never has all (put-slots.ts).
 * Cancellation: by the deadline `request` from the last byte on; before it by the limits of the listener on slow clients and by
 * `write_ms` on a slow storage. While storage takes no bytes the client is not read, so its leaving is seen within `write_ms`.
 */
import { Blake3Hasher } from '@napi-rs/blake-hash';
import { answerError } from '@ron/client';
import type { NodeAnswer } from '@ron/client/node';
import { json, type AnswerHeaders, type LaneQueue, type RouteAnswer, type RouteContext } from '@ron/ingress';
import { onAbort, RonError, sched, type Deadline } from '@ron/kernel';
import { formatAddress, type Address, type ObjectReceipt } from '@ron/proto';
import type { Upstream } from '../upstreams/upstream.ts';
import { bearerOf } from './bearer.ts';
import { beginningOf, concat, declaredLength, isCoded, statedAddress, type StreamedBody } from './put-body.ts';
import type { PutSlots } from './put-slots.ts';
import { refusalByStorage, StorageUpload } from './storage-upload.ts';
import type { TokenExchange } from './token-exchange.ts';

const RECEIPT_BYTES_MAX = 64 * 1024;
/** A stream that took longer has its capability checked again at its end; services apply a revocation within two seconds. */
const RECHECK_MS = 1000;

export interface PutInit {
  readonly storage: Pick<Upstream, 'begin'>;
  readonly exchange: Pick<TokenExchange, 'forPut'>;
  /** The Unix socket of storage. */
  readonly socketPath: string;
  /** For all requests, and for the streams among them. */
  readonly requests: PutSlots;
  readonly streams: PutSlots;
  /** The queue of `put_pool`. It bounds the wait for a worker, not the work. */
  readonly pool: LaneQueue;
  /** Why bodies are shed now; undefined: they are not. */
  readonly shed: () => string | undefined;
  /** The largest body. */
  readonly bytes_max: number;
  /** The largest body with a content coding, decoded. */
  readonly decoded_bytes_max: number;
  /** The time from the last byte to the answer. */
  readonly requestDeadline: (parent: Deadline) => Deadline;
  readonly connect_ms: number;
  readonly write_ms: number;
  readonly onWriteTimeout: () => void;
}

type Context = Pick<
  RouteContext,
  'stream' | 'headers' | 'headerValues' | 'corr_id' | 'grant' | 'deadline' | 'actsOn' | 'chargeRate' | 'park'
>;

const LANE = 'put';
/** Of a request without a capability, on a node that requires none. */
const NO_SUBJECT = '-';

export class PutBridge {
  readonly #init: PutInit;

  constructor(init: PutInit) {
    this.#init = init;
  }

  async handle(context: Context): Promise<RouteAnswer> {
    context.chargeRate();
    const why = this.#init.shed();
    if (why !== undefined) throw new RonError('backpressure', why, { op: 'put', reason: 'BACKPRESSURE' });
    const stated = statedAddress(context.headerValues('x-content-b3'));
    const subject = context.grant?.subject ?? NO_SUBJECT;
    // [interop I-9]
    using _ = this.#init.requests.take(subject);
    try {
      const body = await context.park(() => beginningOf(context));
      return 'whole' in body
        ? await this.#submitWhole(context, body.whole, stated, subject)
        : await this.#submitStream(context, body, stated, subject);
    } catch (error) {
      throw refusalByStorage(error);
    }
  }

  async #submitWhole(
    context: Context,
    body: Uint8Array,
    stated: Address | undefined,
    subject: string,
  ): Promise<RouteAnswer> {
    using deadline = this.#init.requestDeadline(context.deadline);
    const put = (): Promise<RouteAnswer> => this.#putWhole(context, body, stated, deadline);
    // Not under `deadline`: its error would hide that of the call which was late.
    return await this.#init.pool.submit(LANE, context.deadline, put, subject);
  }

  async #submitStream(
    context: Context,
    body: StreamedBody,
    stated: Address | undefined,
    subject: string,
  ): Promise<RouteAnswer> {
    using _ = this.#init.streams.take(subject);
    return await this.#init.pool.submit(LANE, context.deadline, () => this.#putStream(context, body, stated), subject);
  }

  async #putWhole(
    context: Context,
    body: Uint8Array,
    stated: Address | undefined,
    deadline: Deadline,
  ): Promise<RouteAnswer> {
    const address = addressFrom(new Blake3Hasher().update(body));
    requireStated(stated, address);
    context.actsOn({ address });
    const token = await this.#init.exchange.forPut(bearerOf(context), { address }, deadline);
    using call = this.#init.storage.begin('put', deadline);
    try {
      return await deadline.run(async (signal) => {
        using upload = await this.#open(context, { token, address, length: body.length });
        return await this.#receipt(await upload.finish(body, signal), address, () => call.end());
      });
    } catch (error) {
      throw call.fail(error);
    }
  }

  async #putStream(context: Context, { first, rest }: StreamedBody, stated: Address | undefined): Promise<RouteAnswer> {
    if (stated !== undefined) requireFact(context, stated);
    const length = declaredLength(context.headers);
    const bytes_max = length ?? (isCoded(context.headers) ? this.#init.decoded_bytes_max : this.#init.bytes_max);
    const target = stated === undefined ? { bytes_max } : { address: stated };
    const token = await this.#init.exchange.forPut(bearerOf(context), target, context.deadline);
    const begun_ms = sched.now_ms();
    using call = this.#init.storage.begin('put');
    try {
      using upload = await this.#open(context, { token, address: stated, length });
      // [interop I-5] A drain that ends the request also ends a wait for a storage that takes no bytes.
      using _ = onAbort(context.deadline.signal, () => upload[Symbol.dispose]());
      const hasher = new Blake3Hasher();
      const held = await sendAllButLast(upload, concat(first, rest), hasher, () => call.progress());
      using deadline = this.#init.requestDeadline(context.deadline);
      call.restart();
      if (held === 'answered') return await deadline.run(async (signal) => this.#refused(await upload.answer(signal)));
      const address = addressFrom(hasher);
      // The body has ended, and its length and hash were checked while it was read. Storage gets the last chunk only now.
      requireStated(stated, address);
      context.actsOn({ address });
      // A capability that expired or was revoked meanwhile stores nothing: passport checks it again.
      if (sched.now_ms() - begun_ms > RECHECK_MS)
        await this.#init.exchange.forPut(bearerOf(context), { address }, deadline);
      return await deadline.run(async (signal) =>
        this.#receipt(await upload.finish(held, signal), address, () => call.end()),
      );
    } catch (error) {
      throw call.fail(error);
    }
  }

  async #open(
    { headers, corr_id }: Context,
    put: { readonly token: string; readonly address: Address | undefined; readonly length: number | undefined },
  ): Promise<StorageUpload> {
    const { socketPath, connect_ms, write_ms, onWriteTimeout } = this.#init;
    const { token, address, length } = put;
    const type = headers['content-type'];
    return await StorageUpload.open({
      socketPath,
      connect_ms,
      write_ms,
      onWriteTimeout,
      // By its address if it is known: storage then refuses other bytes itself.
      ...(address === undefined ? { method: 'POST', path: '/o' } : { method: 'PUT', path: `/o/${address}` }),
      headers: {
        Authorization: `Bearer ${token}`,
        'X-Corr-ID': corr_id,
        ...(type !== undefined && { 'Content-Type': type }),
        ...(length === undefined ? { 'Transfer-Encoding': 'chunked' } : { 'Content-Length': String(length) }),
      },
    });
  }

  /** The receipt of storage, as the answer. */
  async #receipt(answer: NodeAnswer, address: Address, onGood: () => void): Promise<RouteAnswer> {
    if (answer.status >= 400) return await this.#refused(answer);
    if (answer.status !== 200 && answer.status !== 201) throw malformed(`its status is ${answer.status}`);
    const length = Number(answer.headers.get('content-length') ?? NaN);
    if (!(length <= RECEIPT_BYTES_MAX)) throw malformed('it has no bounded length');
    const receipt = (await answer.json()) as Partial<ObjectReceipt> | null;
    if (receipt?.address !== address) throw malformed('it names another address than that of the body');
    if (!isWhole(receipt)) throw malformed('a field is missing or malformed');
    onGood();
    return json(answer.status, receipt, passedOn(answer));
  }

  /** Storage answered before it had the whole body, or refused it. */
  async #refused(answer: NodeAnswer): Promise<never> {
    if (answer.status < 400) throw malformed('storage acknowledged a body that is not complete');
    throw await answerError(answer, 'put');
  }
}

/** [interop I-9] [interop I-10] Sends each chunk once the next one has arrived. Returns the last one, unsent. */
async function sendAllButLast(
  upload: StorageUpload,
  chunks: AsyncIterable<Uint8Array>,
  hasher: Blake3Hasher,
  onTaken: () => void,
): Promise<Uint8Array | undefined | 'answered'> {
  let held: Uint8Array | undefined;
  for await (const chunk of chunks) {
    if (held !== undefined && (await upload.write(held)) === 'answered') return 'answered';
    if (held !== undefined) onTaken();
    hasher.update(chunk);
    held = chunk;
  }
  return held;
}

function requireStated(stated: Address | undefined, address: Address): void {
  if (stated === undefined || stated === address) return;
  throw new RonError(
    'address_mismatch',
    'the body does not have the hash that X-Content-B3 states; nothing of it is kept',
  );
}

/** Refuses an address that the capability does not allow before the body is read. */
function requireFact({ grant }: Context, address: Address): void {
  const refusal = grant?.phase2.facts({ address });
  if (refusal !== undefined) throw new RonError(refusal.code, refusal.reason);
}

function addressFrom(hasher: Blake3Hasher): Address {
  return formatAddress(hasher.digestBuffer());
}

function isWhole(receipt: Partial<ObjectReceipt>): receipt is ObjectReceipt {
  const { size, durability } = receipt;
  return (
    isCount(size) &&
    typeof durability?.fsynced === 'boolean' &&
    isCount(durability.copies) &&
    isCount(durability.target)
  );
}

const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;

function passedOn({ headers }: NodeAnswer): AnswerHeaders {
  const passed: Record<string, string> = {};
  for (const name of ['Location', 'Ron-Durability']) {
    const value = headers.get(name);
    if (value !== null) passed[name] = value;
  }
  return passed;
}

const malformed = (why: string): RonError => new RonError('integrity', `the receipt is refused: ${why}`, { op: 'put' });
