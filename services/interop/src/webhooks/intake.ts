/**
 * A webhook from its first header to its answer, in the order that keeps forgers out:
 *
 *     provider, network, Origin, rate of the address --> body --> signature --> limits of the provider --> rate of the listener
 *       --> BLAKE3, queue `webhooks` --> mailbox or spool --> receipt --> 202
 *
 * Contract: nothing is queued or stored, and no limit of a provider is charged, before the signature holds. The signed bytes
 * are the content-decoded body, byte for byte. 202 means: the message and its receipt are durable. Each request is recorded once.
 * Bound: `webhook_bytes` for a body, `webhooks.unverified_bytes` for all whose signature is not checked.
 * Cancellation: by the deadline of the request; a delivery that the sender took is stored even if its client leaves.
 */
import { Blake3Hasher } from '@napi-rs/blake-hash';
import { empty, GrowingBytes, json, newCorrId, text, type RouteAnswer, type RouteContext } from '@ron/ingress';
import { RonError, sched, TurnBudget, type Deadline } from '@ron/kernel';
import { INTEROP_LIMITS, type AcceptedWebhook, type WebhookReceipt } from '@ron/proto';
import { UNKNOWN_PROVIDER, type DeliveryRecorder } from '../deliveries/delivery-recorder.ts';
import type { Sender } from '../delivery/sender.ts';
import type { Provider, Providers } from '../providers/providers.ts';
import { reasonOf } from '../reasons.ts';
import type { Door } from './door.ts';
import { idempotencyKey } from './idempotency-key.ts';
import { messageHeaders } from './message-headers.ts';
import type { ProviderLimits } from './provider-limits.ts';
import type { UnverifiedBytes } from './unverified-bytes.ts';
import { verifyWebhook, type Verification } from './verify.ts';

type Verified = Verification & { readonly ok: true };

export interface IntakeInit {
  readonly providers: Pick<Providers, 'get'>;
  readonly door: Door;
  readonly unverified: UnverifiedBytes;
  readonly limits: ProviderLimits;
  readonly sender: Pick<Sender, 'store'>;
  readonly recorder: DeliveryRecorder;
  readonly tolerance_ms: () => number;
  /** The time from the last byte of a request to its answer. */
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

export class Intake {
  readonly #init: IntakeInit;
  // [interop I-7] A flood of large forged bodies delays other requests by a turn, not by all its digests.
  readonly #turns = new TurnBudget('webhook_digests', { units_max: TURN_BYTES });

  constructor(init: IntakeInit) {
    this.#init = init;
  }

  /** The handler of `POST /webhooks/{provider}`. */
  async handle(name: string, context: RouteContext): Promise<RouteAnswer> {
    try {
      const provider = this.#init.door.admit(name, context);
      using account = this.#init.unverified.open(context.ip);
      const body = await bodyOf(context, account);
      return await this.#deliver(provider, body, context, false, account);
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
    if (provider === undefined) throw new RonError('not_found', 'no such provider', { reason: 'POLICY_BLOCKED' });
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

  async #deliver(
    provider: Provider,
    body: Uint8Array,
    request: WebhookRequest,
    isTest: boolean,
    account: Disposable,
  ): Promise<RouteAnswer> {
    const verified = await this.#verify(provider, request, body);
    account[Symbol.dispose]();
    if (verified.challenge !== undefined) {
      this.#record(provider, request, { outcome: 'challenge', bytes: body.length });
      return text(200, 'text/plain; charset=utf-8', verified.challenge);
    }
    const accepted = await this.#accept(provider, verified, body, request, isTest);
    const headers = { 'X-Ron-Receipt': accepted.receipt };
    // A slash command shows the body to the user, and takes 202 for a failure.
    return verified.answers_empty ? empty(200, headers) : json(202, accepted, headers);
  }

  async #verify(provider: Provider, request: WebhookRequest, body: Uint8Array): Promise<Verified> {
    const { descriptor, secrets } = provider;
    const verification = await verifyWebhook(
      { headerValues: (name) => request.headerValues(name), body },
      {
        scheme: descriptor.scheme,
        ...(descriptor.generic !== undefined && { generic: descriptor.generic }),
        secrets,
        wall_ms: sched.wall_ms(),
        tolerance_ms: this.#init.tolerance_ms(),
        takeTurn: (bytes) => this.#turns.take(bytes, request.deadline.signal),
      },
    );
    if (!verification.ok) {
      throw new RonError('unauthorized', verification.detail, { reason: verification.reason });
    }
    provider.countUse(verification.secret_version);
    return verification;
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
    const b3 = `b3:${new Blake3Hasher().update(body).digest('hex')}`;
    const id = newCorrId();
    const received_ms = sched.wall_ms();
    const receipt: WebhookReceipt = {
      id,
      provider: descriptor.name,
      scheme: descriptor.scheme,
      secret_version: verified.secret_version,
      ...(verified.delivery_id !== undefined && { delivery_id: verified.delivery_id }),
      received_ms,
      b3,
      bytes: body.length,
      topic: descriptor.topic,
    };
    const delivery = {
      id,
      provider: descriptor.name,
      topic: descriptor.topic,
      idempotency_key: idempotencyKey(descriptor.name, descriptor.scheme, verified.dedup),
      headers: messageHeaders({
        provider: descriptor.name,
        receipt: id,
        content_type: request.headerValues('content-type')[0],
        verified,
        isTest,
      }),
      received_ms,
      payload: body,
    };
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
    this.#init.recorder.record({ provider: descriptor.name, corr_id, ip, ...record });
  }

  #refused(name: string, { corr_id, ip }: Pick<WebhookRequest, 'corr_id' | 'ip'>, error: unknown): void {
    const provider = this.#init.providers.get(name) === undefined ? UNKNOWN_PROVIDER : name;
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
