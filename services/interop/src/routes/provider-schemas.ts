/** Schemas of the provider routes. `descriptor.ts` checks names, topics, networks, origins and templates. */
import { Type } from '@ron/ingress';
import {
  INTEROP_LIMITS,
  MAILBOX_LIMITS,
  PROVIDER_PATTERN,
  SCHEMES,
  type Descriptor,
  type ProviderRequest,
  type SecretDto,
} from '@ron/proto';
import type { Fields } from './fields.ts';

const { networks, origins, origin_chars, rps_max, inflight_max, overlap_ms_max, secrets } = INTEROP_LIMITS;
/** `whsec_` and the base64 of the longest secret. */
const SECRET_CHARS_MAX = 1024;
const NETWORK_CHARS_MAX = 64;
const TEXT_CHARS_MAX = 256;

const strict = { additionalProperties: false } as const;
const text = (maxLength: number) => Type.String({ minLength: 1, maxLength });
const count = (maximum: number) => Type.Integer({ minimum: 1, maximum });

const Name = Type.String({ pattern: PROVIDER_PATTERN });
const Scheme = Type.Union(SCHEMES.map((name) => Type.Literal(name)));
const Secret = text(SECRET_CHARS_MAX);
const Generic = Type.Object(
  {
    template: text(TEXT_CHARS_MAX),
    signature_header: text(TEXT_CHARS_MAX),
    prefix: Type.Optional(Type.String({ maxLength: TEXT_CHARS_MAX })),
    encoding: Type.Union([Type.Literal('hex'), Type.Literal('base64')]),
    algorithm: Type.Union([Type.Literal('sha256'), Type.Literal('sha512')]),
    timestamp_header: Type.Optional(text(TEXT_CHARS_MAX)),
    id_header: Type.Optional(text(TEXT_CHARS_MAX)),
  },
  strict,
);
const Networks = Type.Array(text(NETWORK_CHARS_MAX), { maxItems: networks });
const Origins = Type.Array(text(origin_chars), { maxItems: origins });
const rps = count(rps_max);
const inflight = count(inflight_max);

export const ProviderParams = Type.Object({ name: Name }, strict);

export const ProviderBody = Type.Object(
  {
    scheme: Scheme,
    topic: Type.Optional(text(MAILBOX_LIMITS.topic_chars)),
    networks: Type.Optional(Networks),
    origins: Type.Optional(Origins),
    limits: Type.Optional(Type.Object({ rps: Type.Optional(rps), inflight: Type.Optional(inflight) }, strict)),
    generic: Type.Optional(Generic),
    secret: Type.Optional({ ...Secret, description: 'Required for a new provider, and for another scheme.' }),
  } satisfies Fields<ProviderRequest>,
  strict,
);

export const RotateBody = Type.Object(
  {
    secret: Secret,
    overlap_ms: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: overlap_ms_max,
        description: 'How long the previous secret stays valid. Default 24 h.',
      }),
    ),
  },
  strict,
);

/** Only these fields are serialized. */
const SecretAnswer = Type.Object(
  {
    version: Type.Integer(),
    kind: Type.Union([Type.Literal('hmac'), Type.Literal('ed25519')]),
    created_ms: Type.Integer(),
    ends_ms: Type.Optional(Type.Integer()),
    uses: Type.Integer(),
    last_used_ms: Type.Optional(Type.Integer()),
    problem: Type.Optional(Type.String({ description: 'Why deliveries that it signed are refused.' })),
  } satisfies Fields<SecretDto>,
  strict,
);
const descriptor = {
  name: Name,
  scheme: Scheme,
  topic: Type.String(),
  networks: Networks,
  origins: Origins,
  limits: Type.Object({ rps, inflight }, strict),
  generic: Type.Optional(Generic),
} satisfies Fields<Descriptor>;
export const ProviderAnswer = Type.Object(
  {
    ...descriptor,
    secrets: Type.Array(SecretAnswer, { maxItems: secrets }),
    problem: Type.Optional(Type.String({ description: 'Why its webhooks are refused.' })),
  },
  strict,
);
export const ProviderList = Type.Object({ providers: Type.Array(ProviderAnswer) }, strict);

export const AcceptedSample = Type.Object(
  {
    receipt: Type.String(),
    duplicate: Type.Boolean(),
    b3: Type.String(),
    place: Type.Union([Type.Literal('mailbox'), Type.Literal('spool')]),
  },
  strict,
);
