/** Shapes that several routes share, and who asks. */
import { ALGS, type Alg } from '@ron/custody';
import type { AnswerHeaders, RouteContext } from '@ron/ingress';
import { Type } from 'typebox';
import type { Attempt, Auditor, Caller } from '../audit/auditor.ts';
import { base64Chars } from '../base64.ts';
import { KID_CHARS_MAX } from '../keys/kid.ts';
import { OP_ID_PATTERN } from '../ops/op-ledger.ts';
import { MESSAGE_BYTES_MAX } from '../sign/message.ts';

export const strict = { additionalProperties: false } as const;
export const BASE = '/v1/kms';

/** Answers hold signatures and secrets of the caller: no cache keeps them. */
export const NO_STORE: AnswerHeaders = Object.freeze({ 'Cache-Control': 'no-store' });

export const KidText = Type.String({ minLength: 1, maxLength: KID_CHARS_MAX });
export const KidParam = Type.Object({ kid: KidText }, strict);
export const OpId = Type.String({ pattern: OP_ID_PATTERN });
export const AlgName = Type.Union(ALGS.map((alg) => Type.Literal(alg)) as unknown as [ReturnType<typeof literal>]);
export const Mode = Type.Union([Type.Literal('or'), Type.Literal('and'), Type.Literal('pq_only')]);
export const PayloadB3 = Type.String({ pattern: '^[0-9a-f]{64}$', description: 'BLAKE3 of the payload, bare hex.' });
export const base64 = (bytes_max: number) => Type.String({ maxLength: base64Chars(bytes_max) });
export const MessageB64 = base64(MESSAGE_BYTES_MAX);
/** A signature of ML-DSA-87 has 4627 bytes. */
export const SIGNATURE_BYTES_MAX = 8192;

const literal = (alg: Alg) => Type.Literal(alg);

export const Part = Type.Object({ alg: Type.String(), pubkey_b64: Type.String() }, strict);
/** One public key; of a hybrid key its parts. Symmetric keys have none. */
export const Public = Type.Object(
  { alg: Type.String(), pubkey_b64: Type.Optional(Type.String()), parts: Type.Optional(Type.Array(Part)) },
  strict,
);

const ACTOR = /^[\w.:-]{1,128}$/;

export function callerOf({ grant, deadline }: Pick<RouteContext, 'grant' | 'deadline'>): Caller {
  const id = grant?.capability_id ?? '';
  return { actor: ACTOR.test(id) ? id : 'unknown', deadline };
}

type Facts = Parameters<RouteContext['actsOn']>[0];

/** Throws when the capability does not allow it; that somebody tried is an entry, like everything that names a key. */
export function allowed(
  auditor: Pick<Auditor, 'recordRefusal'>,
  context: Pick<RouteContext, 'actsOn' | 'grant' | 'deadline'>,
  facts: Facts,
  attempts: () => readonly Attempt[],
): void {
  try {
    context.actsOn(facts);
  } catch (error) {
    for (const attempt of attempts()) auditor.recordRefusal(callerOf(context), attempt, error);
    throw error;
  }
}
