/** Keys of the caller: wrapped, unwrapped, made and derived. What comes back is secret, and no cache keeps it. */
import { json, route, type Route, type RouteContext } from '@ron/ingress';
import { sched, type Deadline } from '@ron/kernel';
import { Type } from 'typebox';
import type { Attempt, Auditor } from '../audit/auditor.ts';
import { fromBase64, toBase64 } from '../base64.ts';
import { tenantOf } from '../keys/kid.ts';
import {
  AAD_BYTES_MAX,
  LABEL_PATTERN,
  PLAINTEXT_BYTES_MAX,
  WRAPPED_BYTES_MAX,
  type SecretOperations,
  type WithKid,
} from '../secrets/secret-operations.ts';
import { allowed, base64, BASE, callerOf, KidText, NO_STORE, strict } from './schemas.ts';

export interface SecretRoutesInit {
  readonly secrets: SecretOperations;
  readonly auditor: Auditor;
  readonly requireReady: () => void;
  readonly enqueue: <A>(tenant: string, deadline: Deadline, work: () => Promise<A>) => Promise<A>;
  /** Tries again where that has the same effect. */
  readonly retry: <A>(
    op: 'unwrap' | 'derive',
    deadline: Deadline,
    work: (signal: AbortSignal) => Promise<A>,
  ) => Promise<A>;
}

const DATA_KEY_BYTES = 32;
const Aad = Type.Optional(base64(AAD_BYTES_MAX));
const WrapBody = Type.Object({ kid: KidText, plaintext_key_b64: base64(PLAINTEXT_BYTES_MAX), aad_b64: Aad }, strict);
const UnwrapBody = Type.Object({ kid: KidText, wrapped_b64: base64(WRAPPED_BYTES_MAX), aad_b64: Aad }, strict);
const DataKeyBody = Type.Object({ kid: KidText, aad_b64: Aad }, strict);
const DeriveBody = Type.Object({ kid: KidText, label: Type.String({ pattern: LABEL_PATTERN }) }, strict);
const Wrapped = { kid: Type.String(), alg: Type.String(), wrapped_b64: Type.String() };
const Plaintext = { plaintext_key_b64: Type.String() };

const common = { method: 'POST', lane: 'inline', deadline: 'sign', body: 'buffered', facts_later: ['tenant'] } as const;

export function secretRoutes(init: SecretRoutesInit): Route[] {
  const { secrets, retry } = init;
  return [
    route({
      ...common,
      path: `${BASE}/wrap`,
      summary: 'Wraps a key of the caller.',
      scope: 'kms:wrap',
      schema: { body: WrapBody, response: { 200: Type.Object(Wrapped, strict) } },
      handler: async (context) => {
        const { kid, plaintext_key_b64, aad_b64 } = context.body;
        const plaintext = fromBase64(plaintext_key_b64, 'plaintext_key_b64', PLAINTEXT_BYTES_MAX);
        const attempt: Attempt = { op: 'wrap', kid, input_bytes: plaintext.length };
        const done = await perform(init, context, attempt, () =>
          secrets.wrap(kid, plaintext, aadOf(aad_b64), context.deadline.signal),
        );
        return json(200, wrapped(done), NO_STORE);
      },
    }),
    route({
      ...common,
      path: `${BASE}/unwrap`,
      summary: 'Gives back a key that was wrapped here, with the same additional data.',
      scope: 'kms:unwrap',
      schema: { body: UnwrapBody, response: { 200: Type.Object(Plaintext, strict) } },
      handler: async (context) => {
        const { kid, wrapped_b64, aad_b64 } = context.body;
        const sealed = fromBase64(wrapped_b64, 'wrapped_b64', WRAPPED_BYTES_MAX);
        const attempt: Attempt = { op: 'unwrap', kid, input_bytes: sealed.length };
        const done = await perform(init, context, attempt, () =>
          retry('unwrap', context.deadline, (signal) => secrets.unwrap(kid, sealed, aadOf(aad_b64), signal)),
        );
        return json(200, { plaintext_key_b64: toBase64(done.bytes) }, NO_STORE);
      },
    }),
    route({
      ...common,
      path: `${BASE}/datakey`,
      summary: 'Makes a key for the caller, and gives it plain and wrapped.',
      scope: 'kms:wrap',
      schema: { body: DataKeyBody, response: { 200: Type.Object({ ...Wrapped, ...Plaintext }, strict) } },
      handler: async (context) => {
        const { kid, aad_b64 } = context.body;
        const plaintext = sched.randomBytes(DATA_KEY_BYTES);
        const attempt: Attempt = { op: 'datakey', kid, input_bytes: DATA_KEY_BYTES };
        const done = await perform(init, context, attempt, () =>
          secrets.wrap(kid, plaintext, aadOf(aad_b64), context.deadline.signal),
        );
        return json(200, { ...wrapped(done), plaintext_key_b64: toBase64(plaintext) }, NO_STORE);
      },
    }),
    route({
      ...common,
      path: `${BASE}/derive`,
      summary: 'A secret that follows from the key and the label.',
      scope: 'kms:derive',
      facts_later: ['tenant', 'label'],
      schema: {
        body: DeriveBody,
        response: {
          200: Type.Object({ kid: Type.String(), min_version: Type.Integer(), secret_b64: Type.String() }, strict),
        },
      },
      handler: async (context) => {
        const { kid, label } = context.body;
        const attempt: Attempt = { op: 'derive', kid, input_bytes: label.length };
        const done = await perform(
          init,
          context,
          attempt,
          () => retry('derive', context.deadline, (signal) => secrets.derive(kid, label, signal)),
          label,
        );
        const { min_version } = done.found.record;
        return json(200, { kid: done.kid, min_version, secret_b64: toBase64(done.bytes) }, NO_STORE);
      },
    }),
  ];
}

/** Allowed, in its turn, and with an entry. */
async function perform(
  { auditor, requireReady, enqueue, secrets }: SecretRoutesInit,
  context: Pick<RouteContext, 'actsOn' | 'deadline' | 'grant'>,
  attempt: Attempt,
  work: () => Promise<WithKid>,
  label?: string,
): Promise<WithKid> {
  const tenant = tenantOf(attempt.kid);
  allowed(auditor, context, label === undefined ? { tenant } : { tenant, label }, () => [attempt]);
  const turn = async (ready: () => Promise<WithKid>): Promise<WithKid> => {
    requireReady();
    // What is for no key takes no place in the queue.
    secrets.requireKey(attempt.kid);
    return await enqueue(tenant, context.deadline, ready);
  };
  const { answer } = await auditor.runRecorded(callerOf(context), attempt, turn, work, ({ kid, found }) => ({
    kid,
    record: found.record,
  }));
  return answer;
}

function wrapped({ kid, found, bytes }: WithKid): { kid: string; alg: string; wrapped_b64: string } {
  return { kid, alg: found.record.alg, wrapped_b64: toBase64(bytes) };
}

function aadOf(text: string | undefined): Uint8Array {
  return text === undefined ? new Uint8Array(0) : fromBase64(text, 'aad_b64', AAD_BYTES_MAX);
}
