/**
 * A webhook from its first header to its answer, in this order, so that a forged one costs least:
 *
 *     provider, network, Origin, rate of the address --> body --> signature --> limits of the provider --> rate of the listener
 *       --> BLAKE3, queue `webhooks` --> mailbox or spool --> receipt --> 202
 *
 * Contract: nothing is queued or stored, and no limit of a provider is charged, before the signature holds. The signed bytes
 * are the content-decoded body, byte for byte. 202 means: the message and its receipt are durable. Each request is recorded once.
 * Bound: `webhook_bytes` for a body, `webhooks.unverified_bytes` for all whose signature is not checked.
 * Cancellation: by the deadlines of the body and of the request; a delivery that the sender took is stored even if its client leaves.
 */
import { empty, GrowingBytes, json, newCorrId, text, type RouteAnswer, type RouteContext } from '@ron/ingress';
import { isRonError, RonError, sched, TurnBudget, type Deadline } from '@ron/kernel';
import { INTEROP_LIMITS, type AcceptedWebhook, type Descriptor, type WebhookReceipt } from '@ron/proto';
import { UNKNOWN_PROVIDER, type DeliveryRecorder } from '../deliveries/delivery-recorder.ts';
import type { Sender } from '../delivery/sender.ts';
import { unknownProvider } from '../providers/provider-table.ts';
import type { Provider, Providers } from '../providers/providers.ts';
import { reasonOf } from '../reasons.ts';
import type { Delivery } from '../mailbox/delivery.ts';
import type { SourceChecks } from './source-checks.ts';
import { idempotencyKey } from './idempotency-key.ts';
import { messageHeaders } from './message-headers.ts';
import type { ProviderLimiter } from './provider-limiter.ts';
import { b3By } from '../signatures/schemes/body-fields.ts';
import type { UnverifiedBytes } from './unverified-bytes.ts';
import { verifyWebhook, type Verification, type Verified } from '../signatures/verify.ts';

export interface IntakeInit {
  readonly providers: Pick<Providers, 'get'>;
  readonly source: SourceChecks;
  readonly unverified: UnverifiedBytes;
  readonly limits: ProviderLimiter;
  readonly sender: Pick<Sender, 'store'>;
  readonly recorder: DeliveryRecorder;
  readonly tolerance_ms: () => number;
  /** The time from the headers of a request to its last byte. */
  readonly bodyDeadline: (parent: Deadline) => Deadline;
  /** The time from the limits of the provider to the answer. */
  readonly requestDeadline: (parent: Deadline) => Deadline;
}

/** The parts of a request that the intake reads after its body. */
export interface WebhookRequest {
  readonly ip: string;
  readonly corr_id: string;
  readonly deadline: Deadline;
  /** Charges the rate of the listener; throws 429. */
  chargeRate(): void;
  headerValues(name: string): readonly string[];
}

/** The bytes that all requests together verify in one turn of the event loop: about 1.5 ms of SHA-256. */
const TURN_BYTES = 512 * 1024;
/** The digest of fewer bytes takes at most 50 us. */
const SMALL_BYTES = 16 * 1024;

export class Intake {
  readonly #init: IntakeInit;
  // [interop I-7] A flood of large bodies delays other requests by a turn, not by all its digests and all its JSON.
  readonly #turns = new TurnBudget('webhook_digests', { units_max: TURN_BYTES });

  constructor(init: IntakeInit) {
    this.#init = init;
  }

  /** The handler of `POST /webhooks/{provider}`. */
  async handle(name: string, context: RouteContext): Promise<RouteAnswer> {
    try {
      const provider = this.#init.source.admit(name, context);
      const network = this.#init.source.networkOf(provider, context.ip);
      using account = this.#init.unverified.open(context.ip, network);
      // [interop I-9] Senders that are not verified hold connections and the budget of bodies, but no permit of the listener.
      const body = await this.#receive(context, account);
      return await this.#deliver(provider, body, context, account);
    } catch (error) {
      this.#refused(name, context, error);
      throw error;
    }
  }

  /** A signed sample of the operator: takes the same path from the signature on. */
  async deliverSample(
    name: string,
    headers: Readonly<Record<string, string>>,
    body: Uint8Array,
    context: RouteContext,
  ): Promise<AcceptedWebhook> {
    const provider = this.#init.providers.get(name);
    if (provider === undefined) throw unknownProvider();
    const request: WebhookRequest = {
      ip: context.ip,
      corr_id: context.corr_id,
      deadline: context.deadline,
      chargeRate: () => undefined,
      headerValues: (wanted) =>
        Object.entries(headers).flatMap(([at, value]) => (at.toLowerCase() === wanted ? [value] : [])),
    };
    try {
      const verified = await this.#verify(provider, request, body);
      return await this.#accept(provider, verified, body, request, true);
    } catch (error) {
      this.#refused(name, request, error);
      throw error;
    }
  }

  async #receive(context: RouteContext, account: { received(bytes: number): void }): Promise<Uint8Array> {
    using deadline = this.#init.bodyDeadline(context.deadline);
    try {
      return await context.park(() => deadline.run(() => bodyOf(context, account)));
    } catch (error) {
      if (!isRonError(error, 'timeout')) throw error;
      // Only the client can be late here: a timeout would count as one of an upstream.
      throw new RonError('request_timeout', 'the body did not arrive in time', { op: 'read' });
    }
  }

  async #deliver(
    provider: Provider,
    body: Uint8Array,
    request: WebhookRequest,
    account: Disposable,
  ): Promise<RouteAnswer> {
    const verified = await this.#verify(provider, request, body);
    account[Symbol.dispose]();
    if (verified.challenge !== undefined) {
      using _ = this.#init.limits.enter(provider.descriptor);
      request.chargeRate();
      this.#record(provider, request, { outcome: 'challenge', bytes: body.length });
      return text(200, 'text/plain; charset=utf-8', verified.challenge);
    }
    const accepted = await this.#accept(provider, verified, body, request, false);
    const headers = { 'X-Ron-Receipt': accepted.receipt };
    // A slash command shows the body to the user, and takes 202 for a failure.
    return verified.answers_empty ? empty(200, headers) : json(202, accepted, headers);
  }

  async #verify(provider: Provider, request: WebhookRequest, body: Uint8Array): Promise<Verified> {
    let ed25519_checks = 0;
    try {
      const verification = await this.#check(provider, request, body, () => {
        this.#init.source.requireNoDebt(provider, request.ip);
        ed25519_checks += 1;
      });
      if (!verification.ok) {
        throw new RonError('unauthorized', verification.detail, { reason: verification.reason });
      }
      provider.countUse(verification.secret_version);
      return verification;
    } catch (error) {
      // Also for a request that ends before its verdict: a forger chooses its deadline.
      this.#init.source.chargeForgery(provider, request.ip, ed25519_checks);
      throw error;
    }
  }

  #check(
    { descriptor, secrets }: Provider,
    request: WebhookRequest,
    body: Uint8Array,
    onEd25519: () => void,
  ): Promise<Verification> {
    return verifyWebhook(
      { headerValues: (name) => request.headerValues(name), body },
      {
        scheme: descriptor.scheme,
        ...(descriptor.generic !== undefined && { generic: descriptor.generic }),
        secrets,
        wall_ms: sched.wall_ms(),
        tolerance_ms: this.#init.tolerance_ms(),
        takeTurn: (bytes) => this.#takeTurn(bytes, request.deadline.signal),
        onEd25519,
      },
    );
  }

  /** A small digest takes less time than its wait, so it does not wait behind large ones. Their number is that of requests. */
  async #takeTurn(bytes: number, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (bytes > SMALL_BYTES) await this.#turns.take(bytes, signal);
  }

  async #accept(
    provider: Provider,
    verified: Verified,
    body: Uint8Array,
    request: WebhookRequest,
    isTest: boolean,
  ): Promise<AcceptedWebhook> {
    const { descriptor } = provider;
    using _ = this.#init.limits.enter(descriptor);
    request.chargeRate();
    const receipt = receiptOf(descriptor, verified, body);
    const { b3 } = receipt;
    const delivery = deliveryOf(provider, verified, { receipt, body, request, isTest });
    using deadline = this.#init.requestDeadline(request.deadline);
    const accepted = await this.#init.sender.store({ delivery, receipt }, deadline);
    this.#record(provider, request, {
      outcome: accepted.duplicate ? 'duplicate' : accepted.place === 'spool' ? 'spooled' : 'accepted',
      bytes: body.length,
      b3,
      receipt: accepted.receipt,
      ...(verified.event !== undefined && { event: verified.event }),
      ...(verified.delivery_id !== undefined && { delivery_id: verified.delivery_id }),
      ...(isTest && { test: true }),
    });
    return { ...accepted, b3 };
  }

  #record(
    { descriptor }: Provider,
    { corr_id, ip }: Pick<WebhookRequest, 'corr_id' | 'ip'>,
    record: Omit<Parameters<DeliveryRecorder['record']>[0], 'provider' | 'corr_id'>,
  ): void {
    const { name: provider } = descriptor;
    this.#init.recorder.record({ provider, corr_id, ip, ...record }, this.#labelOf(provider));
  }

  /** A provider may be removed while its request is in process. */
  #labelOf(name: string): string {
    return this.#init.providers.get(name) === undefined ? UNKNOWN_PROVIDER : name;
  }

  #refused(name: string, { corr_id, ip }: Pick<WebhookRequest, 'corr_id' | 'ip'>, error: unknown): void {
    const provider = this.#labelOf(name);
    const reason = reasonOf(error);
    const detail = error instanceof RonError ? error.message : 'internal error';
    this.#init.recorder.record({
      provider,
      outcome: 'refused',
      corr_id,
      ip,
      detail,
      ...(reason !== undefined && { reason }),
    });
  }
}

function receiptOf(
  { name, scheme, topic }: Descriptor,
  { secret_version, delivery_id, dedup }: Verified,
  body: Uint8Array,
): WebhookReceipt {
  return {
    id: newCorrId(),
    provider: name,
    scheme,
    secret_version,
    ...(delivery_id !== undefined && { delivery_id }),
    received_ms: sched.wall_ms(),
    b3: b3By(dedup, body),
    bytes: body.length,
    topic,
  };
}

interface DeliveryInit {
  readonly receipt: WebhookReceipt;
  readonly body: Uint8Array;
  readonly request: WebhookRequest;
  readonly isTest: boolean;
}

/** The message of a verified webhook. It has the id of its receipt. */
function deliveryOf(
  { descriptor: { name, scheme, topic }, incarnation }: Provider,
  verified: Verified,
  { receipt: { id, received_ms }, body, request, isTest }: DeliveryInit,
): Delivery {
  const content_type = request.headerValues('content-type')[0];
  return {
    id,
    provider: name,
    topic,
    idempotency_key: idempotencyKey({ provider: name, incarnation, scheme, dedup: verified.dedup }),
    headers: messageHeaders({ provider: name, receipt: id, content_type, verified, isTest }),
    received_ms,
    payload: body,
  };
}

/** Reads the body under the budget of unverified bodies. */
async function bodyOf(context: RouteContext, account: { received(bytes: number): void }): Promise<Uint8Array> {
  const pieces = new GrowingBytes();
  let bytes = 0;
  for await (const piece of context.stream) {
    bytes += piece.length;
    // [interop I-10] Checked again here, after decoding.
    if (bytes > INTEROP_LIMITS.webhook_bytes) {
      throw new RonError('payload_too_large', `a webhook has at most ${INTEROP_LIMITS.webhook_bytes} bytes`);
    }
    account.received(piece.length);
    pieces.add(piece);
  }
  return pieces.whole();
}
