/** The shapes of requests and responses, one constant per route. */
import { CAPABILITY_ID_PATTERN, NONCE_PATTERN, TOKEN_CHARS_MAX } from '@ron/auth';
import { ADDRESS_PATTERN, SERVICES, type Service } from '@ron/proto';
import { Type } from '@ron/ingress';

const TTL_MS_MAX = 2 ** 53 - 1;
/** In a caveat a number has at most 16 digits. */
const BYTES_MAX = Number.MAX_SAFE_INTEGER;

const strict = { additionalProperties: false } as const;
const audience = (name: Service) => Type.Literal(name);
const Audience = Type.Union(SERVICES.map(audience) as unknown as [ReturnType<typeof audience>]);
const Subject = Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' });
const CapabilityId = Type.String({ pattern: CAPABILITY_ID_PATTERN });
const ScopeText = Type.String({ maxLength: 64 });

export const ISSUE = {
  body: Type.Object(
    {
      audience: Audience,
      scopes: Type.Array(ScopeText, { minItems: 1, maxItems: 32 }),
      subject: Type.Optional(Subject),
      ttl_ms: Type.Optional(Type.Integer({ minimum: 1, maximum: TTL_MS_MAX })),
      caveats: Type.Optional(Type.Array(Type.String({ maxLength: 1024 }), { maxItems: 28 })),
    },
    strict,
  ),
  response: {
    201: Type.Object(
      { token: Type.String(), capability_id: Type.String(), subject: Type.String(), expires_ms: Type.Integer() },
      strict,
    ),
  },
} as const;

export const VERIFY = {
  body: Type.Object({ token: Type.String({ maxLength: 8192 }), scope: Type.Optional(ScopeText) }, strict),
  response: {
    200: Type.Object(
      {
        ok: Type.Boolean(),
        reason: Type.Optional(Type.String()),
        audience: Type.Optional(Type.String()),
        subject: Type.Optional(Type.String()),
        scopes: Type.Optional(Type.Array(Type.String())),
        expires_ms: Type.Optional(Type.Integer()),
        capability_id: Type.Optional(Type.String()),
      },
      strict,
    ),
  },
} as const;

const Token = Type.String({ minLength: 1, maxLength: TOKEN_CHARS_MAX });
const Put = Type.Literal('interop:put');

export const EXCHANGE = {
  body: Type.Union([
    Type.Object(
      {
        token: Token,
        scope: Type.Union([Put, Type.Literal('interop:get')]),
        address: Type.String({ pattern: ADDRESS_PATTERN }),
      },
      strict,
    ),
    Type.Object({ token: Token, scope: Put, bytes_max: Type.Integer({ minimum: 0, maximum: BYTES_MAX }) }, strict),
  ]),
  response: {
    200: Type.Object(
      {
        ok: Type.Boolean(),
        token: Type.Optional(Type.String()),
        capability_id: Type.Optional(Type.String()),
        subject: Type.Optional(Type.String()),
        expires_ms: Type.Optional(Type.Integer()),
        code: Type.Optional(Type.String()),
        cause: Type.Optional(Type.String()),
        reason: Type.Optional(Type.String()),
      },
      strict,
    ),
  },
} as const;

export const REVOKE = {
  body: Type.Union([
    Type.Object({ subject: Subject }, strict),
    Type.Object({ capability_id: CapabilityId }, strict),
    Type.Object({ all: Type.Literal(true) }, strict),
  ]),
  response: {
    200: Type.Object(
      {
        subject: Type.Optional(Type.String()),
        capability_id: Type.Optional(Type.String()),
        epoch: Type.Integer(),
      },
      strict,
    ),
  },
} as const;

export const REVOCATIONS = {
  query: Type.Object(
    {
      audience: Audience,
      nonce: Type.String({ pattern: NONCE_PATTERN }),
      after: Type.Optional(Type.String({ pattern: '^[0-9]{1,15}$' })),
    },
    strict,
  ),
  response: { 200: Type.Object({ key_id: Type.String(), signed: Type.String(), mac: Type.String() }, strict) },
} as const;
