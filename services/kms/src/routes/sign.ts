/** Signatures: made one by one or in batches, and checked. */
import { json, route, type Route } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import { Type, type Static } from 'typebox';
import type { Attempt, Auditor, Caller } from '../audit/auditor.ts';
import { inputOf } from '../audit/event.ts';
import { fromBase64 } from '../base64.ts';
import { tenantOf } from '../keys/kid.ts';
import { MESSAGE_BYTES_MAX } from '../sign/message.ts';
import {
  attemptsOf,
  ITEMS_MAX,
  KID_SET_MAX,
  type SigningService,
  type SignedItem,
  type SignItem,
} from '../sign/signing-service.ts';
import { SIGNATURES_MAX, type Verifier } from '../verify/verifier.ts';
import {
  allowed,
  base64,
  BASE,
  callerOf,
  KidText,
  MessageB64,
  Mode,
  NO_STORE,
  OpId,
  PayloadB3,
  SIGNATURE_BYTES_MAX,
  strict,
} from './schemas.ts';

/** A proof that an entry is in the log, as of a signed checkpoint. */
export type Prove = (index: number, caller: Caller) => Promise<unknown>;

export interface SignRoutesInit {
  readonly signing: SigningService;
  readonly verifier: Verifier;
  readonly auditor: Auditor;
  /** Waits for the checkpoint that covers an entry. */
  readonly prove: Prove;
}

const item = {
  kid: Type.Optional(KidText),
  kid_set: Type.Optional(Type.Array(KidText, { minItems: 1, maxItems: KID_SET_MAX })),
  payload_b3: Type.Optional(PayloadB3),
  message_b64: Type.Optional(MessageB64),
  op_id: Type.Optional(OpId),
};
const Item = Type.Object(item, strict);
const SignBody = Type.Object(
  {
    ...item,
    wait: Type.Optional(Type.Literal('checkpoint')),
    items: Type.Optional(Type.Array(Item, { minItems: 1, maxItems: ITEMS_MAX })),
  },
  strict,
);
const SignedSchema = {
  kid: Type.String(),
  sigs: Type.Array(Type.Object({ kid: Type.String(), alg: Type.String(), signature_b64: Type.String() }, strict)),
  log_index: Type.Optional(Type.Integer()),
  proof: Type.Optional(Type.Unsafe<unknown>({})),
};
const SignAnswer = Type.Object(
  {
    kid: Type.Optional(Type.String()),
    sigs: Type.Optional(SignedSchema.sigs),
    log_index: SignedSchema.log_index,
    proof: SignedSchema.proof,
    items: Type.Optional(Type.Array(Type.Object(SignedSchema, strict))),
  },
  strict,
);
const VerifyBody = Type.Object(
  {
    kid: KidText,
    payload_b3: Type.Optional(PayloadB3),
    message_b64: Type.Optional(MessageB64),
    sigs: Type.Array(
      Type.Object(
        {
          kid: Type.Optional(KidText),
          alg: Type.String({ maxLength: 16 }),
          signature_b64: base64(SIGNATURE_BYTES_MAX),
        },
        strict,
      ),
      { minItems: 1, maxItems: SIGNATURES_MAX },
    ),
    policy: Type.Optional(Type.Object({ mode: Type.Optional(Mode) }, strict)),
  },
  strict,
);
const VerifyAnswer = Type.Object(
  {
    ok: Type.Boolean(),
    details: Type.Object(
      {
        checked: Type.Array(Type.Object({ alg: Type.String(), ok: Type.Boolean() }, strict)),
        satisfied_mode: Type.Optional(Mode),
        reason: Type.Optional(Type.String()),
      },
      strict,
    ),
    cache_age_ms: Type.Optional(Type.Number()),
  },
  strict,
);

export function signRoutes({ signing, verifier, auditor, prove }: SignRoutesInit): Route[] {
  return [
    route({
      method: 'POST',
      path: `${BASE}/sign`,
      summary: 'Signs a payload with one key or several, or with `items` a batch.',
      scope: 'kms:sign',
      lane: 'inline',
      deadline: 'sign',
      body: 'buffered',
      facts_later: ['tenant'],
      schema: { body: SignBody, response: { 200: SignAnswer } },
      handler: async (context) => {
        const { body } = context;
        const items = itemsOf(body);
        for (const each of items) {
          for (const kid of each.kids) allowed(auditor, context, { tenant: tenantOf(kid) }, () => attemptsOf(each));
        }
        const caller = callerOf(context);
        const signed = await signing.sign(items, caller);
        const answers =
          body.wait === undefined ? signed : await Promise.all(signed.map((each) => proven(each, prove, caller)));
        return json(200, body.items === undefined ? answers[0] : { items: answers }, NO_STORE);
      },
    }),
    route({
      method: 'POST',
      path: `${BASE}/verify`,
      summary: 'Checks signatures. A wrong one is an answer, not an error.',
      scope: 'kms:verify',
      lane: 'inline',
      deadline: 'verify',
      body: 'buffered',
      facts_later: ['tenant'],
      schema: { body: VerifyBody, response: { 200: VerifyAnswer } },
      handler: async (context) => {
        const { body } = context;
        const caller = callerOf(context);
        const payload = { payload_b3: body.payload_b3, message: messageOf(body.message_b64) };
        const asked = { op: 'verify', kid: body.kid, ...inputOf(payload) } as const;
        allowed(auditor, context, { tenant: tenantOf(body.kid) }, () => [asked]);
        const sigs = body.sigs.map(({ kid, alg, signature_b64 }) => ({
          kid,
          alg,
          signature: fromBase64(signature_b64, 'signature_b64', SIGNATURE_BYTES_MAX),
        }));
        const verified = await orRefused(auditor, caller, asked, () =>
          verifier.verify({ kid: body.kid, ...payload, sigs, mode: body.policy?.mode }, caller.deadline.signal),
        );
        const { ok, checked, mode, reason, cache_age_ms, found, kid } = verified;
        const result = ok ? 'ok' : 'not_verified';
        await auditor.recordRead(caller, { ...asked, kid }, { kid, record: found.record }, result);
        const details = { checked, ...(ok ? { satisfied_mode: mode } : { reason }) };
        return json(200, { ok, details, ...(cache_age_ms === undefined ? {} : { cache_age_ms }) }, NO_STORE);
      },
    }),
  ];
}

/** One that cannot even be looked at is an entry as well. */
async function orRefused<A>(auditor: Auditor, caller: Caller, attempt: Attempt, work: () => Promise<A>): Promise<A> {
  try {
    return await work();
  } catch (error) {
    auditor.recordRefusal(caller, attempt, error);
    throw error;
  }
}

function itemsOf(body: Static<typeof SignBody>): SignItem[] {
  const { items, wait: _, ...single } = body;
  if (items === undefined) return [itemOf(single)];
  if (Object.keys(single).length > 0)
    throw new RonError('validation', 'items stands alone: keys and payloads are in them');
  return items.map(itemOf);
}

function itemOf({ kid, kid_set, payload_b3, message_b64, op_id }: Static<typeof Item>): SignItem {
  if ((kid === undefined) === (kid_set === undefined)) throw new RonError('validation', 'give either kid or kid_set');
  if ((payload_b3 === undefined) === (message_b64 === undefined)) {
    throw new RonError('validation', 'give payload_b3, or message_b64 for keys of purpose raw');
  }
  if (kid_set !== undefined && new Set(kid_set).size !== kid_set.length) {
    throw new RonError('validation', 'kid_set names a key twice');
  }
  return { kids: kid_set ?? [kid!], payload_b3, message: messageOf(message_b64), op_id };
}

function messageOf(text: string | undefined): Uint8Array | undefined {
  return text === undefined ? undefined : fromBase64(text, 'message_b64', MESSAGE_BYTES_MAX);
}

async function proven(signed: SignedItem, prove: Prove, caller: Caller): Promise<SignedItem & { proof?: unknown }> {
  if (signed.log_index === undefined) return signed;
  return { ...signed, proof: await prove(signed.log_index, caller) };
}
