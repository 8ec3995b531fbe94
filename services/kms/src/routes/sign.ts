/** Handlers that sign and verify. */
import { json, type RouteAnswer, type RouteContext } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import type { Static } from '@ron/ingress';
import type { Attempt, Auditor, Caller } from '../audit/auditor.ts';
import { inputOf } from '../audit/event.ts';
import { fromBase64 } from '../base64.ts';
import { MESSAGE_BYTES_MAX } from '../sign/message.ts';
import { attemptsOf, type SignedItem, type SigningService, type SignItem } from '../sign/signing-service.ts';
import type { Verifier } from '../verify/verifier.ts';
import { callerOf, factsOf, requireAllowed } from './caller.ts';
import { NO_STORE } from './no-store.ts';
import { SIGNATURE_BYTES_MAX, type Item, type SIGN, type SignBody, type VERIFY } from './schemas.ts';

/** Proves that an entry is in the log, as of a signed checkpoint. */
export type Prove = (index: number, caller: Caller) => Promise<unknown>;

export interface SignRoutesInit {
  readonly signing: SigningService;
  readonly verifier: Verifier;
  readonly auditor: Auditor;
  /** Waits for the checkpoint that covers an entry. */
  readonly prove: Prove;
}

export async function sign(
  { signing, auditor, prove }: SignRoutesInit,
  context: RouteContext<typeof SIGN>,
): Promise<RouteAnswer> {
  const { body } = context;
  const items = itemsOf(body);
  for (const each of items) {
    for (const kid of each.kids) requireAllowed(auditor, context, factsOf(kid), () => attemptsOf(each));
  }
  const caller = callerOf(context);
  const signed = await signing.sign(items, caller);
  const answers =
    body.wait === undefined ? signed : await Promise.all(signed.map((each) => withProof(each, prove, caller)));
  return json(200, body.items === undefined ? answers[0] : { items: answers }, NO_STORE);
}

export async function verify(
  { verifier, auditor }: SignRoutesInit,
  context: RouteContext<typeof VERIFY>,
): Promise<RouteAnswer> {
  const { body } = context;
  const caller = callerOf(context);
  const payload = { payload_b3: body.payload_b3, message: messageOf(body.message_b64) };
  const attempt = { op: 'verify', kid: body.kid, ...inputOf(payload) } as const;
  requireAllowed(auditor, context, factsOf(body.kid), () => [attempt]);
  const sigs = body.sigs.map(({ kid, alg, signature_b64 }) => ({
    kid,
    alg,
    signature: fromBase64(signature_b64, 'signature_b64', SIGNATURE_BYTES_MAX),
  }));
  const verified = await orRecordRefusal(auditor, caller, attempt, () =>
    verifier.verify({ kid: body.kid, ...payload, sigs, mode: body.policy?.mode }, caller.deadline.signal),
  );
  const { ok, checked, mode, reason, cache_age_ms, found, kid } = verified;
  const result = ok ? 'ok' : 'not_verified';
  await auditor.recordRead(caller, { ...attempt, kid }, { kid, record: found.record }, result);
  const details = { checked, ...(ok ? { satisfied_mode: mode } : { reason }) };
  return json(200, { ok, details, ...(cache_age_ms === undefined ? {} : { cache_age_ms }) }, NO_STORE);
}

/** Requests that cannot be verified at all are recorded too. */
async function orRecordRefusal<A>(
  auditor: Auditor,
  caller: Caller,
  attempt: Attempt,
  work: () => Promise<A>,
): Promise<A> {
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
    throw new RonError('validation', 'items excludes kid, kid_set, payload_b3, message_b64 and op_id');
  return items.map(itemOf);
}

function itemOf({ kid, kid_set, payload_b3, message_b64, op_id }: Static<typeof Item>): SignItem {
  if ((kid === undefined) === (kid_set === undefined)) {
    throw new RonError('validation', 'specify either kid or kid_set');
  }
  if ((payload_b3 === undefined) === (message_b64 === undefined)) {
    throw new RonError('validation', 'specify either payload_b3, or message_b64 for keys with purpose raw');
  }
  if (kid_set !== undefined && new Set(kid_set).size !== kid_set.length) {
    throw new RonError('validation', 'kid_set contains a key twice');
  }
  return { kids: kid_set ?? [kid!], payload_b3, message: messageOf(message_b64), op_id };
}

function messageOf(text: string | undefined): Uint8Array | undefined {
  return text === undefined ? undefined : fromBase64(text, 'message_b64', MESSAGE_BYTES_MAX);
}

async function withProof(signed: SignedItem, prove: Prove, caller: Caller): Promise<SignedItem & { proof?: unknown }> {
  if (signed.log_index === undefined) return signed;
  return { ...signed, proof: await prove(signed.log_index, caller) };
}
