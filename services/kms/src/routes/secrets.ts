/** Handlers that wrap, unwrap, generate and derive keys of the caller. Their responses are secret and never cached. */
import { json, type RouteAnswer, type RouteContext } from '@ron/ingress';
import { sched, type Deadline } from '@ron/kernel';
import type { Attempt, Auditor } from '../audit/auditor.ts';
import { fromBase64, toBase64 } from '../base64.ts';
import {
  AAD_BYTES_MAX,
  PLAINTEXT_BYTES_MAX,
  WRAPPED_BYTES_MAX,
  type SecretOperations,
  type WithKid,
} from '../secrets/secret-operations.ts';
import { callerOf, factsOf, requireAllowed } from './caller.ts';
import { NO_STORE } from './no-store.ts';
import type * as schemas from './schemas.ts';

export interface SecretRoutesInit {
  readonly secrets: SecretOperations;
  readonly auditor: Auditor;
  /** Throws while the backend must not be used. */
  readonly requireReady: () => void;
  /** Runs the work when the fair queue reaches it. */
  readonly enqueue: <A>(tenant: string, deadline: Deadline, work: () => Promise<A>) => Promise<A>;
  /** Retries idempotent work within the deadline. */
  readonly retry: <A>(
    op: 'unwrap' | 'derive',
    deadline: Deadline,
    work: (signal: AbortSignal) => Promise<A>,
  ) => Promise<A>;
}

const DATA_KEY_BYTES = 32;

export async function wrap(init: SecretRoutesInit, context: RouteContext<typeof schemas.WRAP>): Promise<RouteAnswer> {
  const { kid, plaintext_key_b64, aad_b64 } = context.body;
  const plaintext = fromBase64(plaintext_key_b64, 'plaintext_key_b64', PLAINTEXT_BYTES_MAX);
  const attempt: Attempt = { op: 'wrap', kid, input_bytes: plaintext.length };
  const done = await perform(init, context, attempt, () =>
    init.secrets.wrap(kid, plaintext, aadOf(aad_b64), context.deadline.signal),
  );
  return json(200, wrappedView(done), NO_STORE);
}

export async function unwrap(
  init: SecretRoutesInit,
  context: RouteContext<typeof schemas.UNWRAP>,
): Promise<RouteAnswer> {
  const { kid, wrapped_b64, aad_b64 } = context.body;
  const sealed = fromBase64(wrapped_b64, 'wrapped_b64', WRAPPED_BYTES_MAX);
  const attempt: Attempt = { op: 'unwrap', kid, input_bytes: sealed.length };
  const done = await perform(init, context, attempt, () =>
    init.retry('unwrap', context.deadline, (signal) => init.secrets.unwrap(kid, sealed, aadOf(aad_b64), signal)),
  );
  return json(200, { plaintext_key_b64: toBase64(done.bytes) }, NO_STORE);
}

export async function makeDataKey(
  init: SecretRoutesInit,
  context: RouteContext<typeof schemas.DATA_KEY>,
): Promise<RouteAnswer> {
  const { kid, aad_b64 } = context.body;
  const plaintext = sched.randomBytes(DATA_KEY_BYTES);
  const attempt: Attempt = { op: 'datakey', kid, input_bytes: DATA_KEY_BYTES };
  const done = await perform(init, context, attempt, () =>
    init.secrets.wrap(kid, plaintext, aadOf(aad_b64), context.deadline.signal),
  );
  return json(200, { ...wrappedView(done), plaintext_key_b64: toBase64(plaintext) }, NO_STORE);
}

export async function derive(
  init: SecretRoutesInit,
  context: RouteContext<typeof schemas.DERIVE>,
): Promise<RouteAnswer> {
  const { kid, label } = context.body;
  const attempt: Attempt = { op: 'derive', kid, input_bytes: label.length };
  const work = (): Promise<WithKid> =>
    init.retry('derive', context.deadline, (signal) => init.secrets.derive(kid, label, signal));
  const done = await perform(init, context, attempt, work, label);
  const { min_version } = done.found.record;
  return json(200, { kid: done.kid, min_version, secret_b64: toBase64(done.bytes) }, NO_STORE);
}

/** Checks the capability, runs the work in the queue and records it in the audit log. */
async function perform(
  { auditor, requireReady, enqueue, secrets }: SecretRoutesInit,
  context: Pick<RouteContext, 'actsOn' | 'deadline' | 'grant'>,
  attempt: Attempt,
  work: () => Promise<WithKid>,
  label?: string,
): Promise<WithKid> {
  const facts = factsOf(attempt.kid);
  requireAllowed(auditor, context, { ...facts, label }, () => [attempt]);
  const turn = async (ready: () => Promise<WithKid>): Promise<WithKid> => {
    requireReady();
    // Requests for unknown keys take no slot in the queue.
    secrets.requireKey(attempt.kid);
    return await enqueue(facts.tenant, context.deadline, ready);
  };
  const { answer } = await auditor.runRecorded(callerOf(context), attempt, turn, work, ({ kid, found }) => ({
    kid,
    record: found.record,
  }));
  return answer;
}

function wrappedView({ kid, found, bytes }: WithKid): { kid: string; alg: string; wrapped_b64: string } {
  return { kid, alg: found.record.alg, wrapped_b64: toBase64(bytes) };
}

function aadOf(text: string | undefined): Uint8Array {
  return text === undefined ? new Uint8Array(0) : fromBase64(text, 'aad_b64', AAD_BYTES_MAX);
}
