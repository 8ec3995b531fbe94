/** The shapes of requests and responses, one constant per route. */
import { CAPABILITY_ID_PATTERN, CAPABILITY_LIMITS } from '@ron/auth';
import { ALGS, type Alg } from '@ron/custody';
import { Type } from '@ron/ingress';
import { SERVICES, type Service } from '@ron/proto';
import { base64Chars } from '../base64.ts';
import { KID_CHARS_MAX, PURPOSE_PATTERN, RAW_PURPOSE, TENANT_PATTERN } from '../keys/kid.ts';
import { OP_ID_PATTERN } from '../ops/op-ledger.ts';
import { AAD_BYTES_MAX, LABEL_PATTERN, PLAINTEXT_BYTES_MAX, WRAPPED_BYTES_MAX } from '../secrets/secret-operations.ts';
import { MESSAGE_BYTES_MAX } from '../sign/message.ts';
import { ITEMS_MAX, KID_SET_MAX } from '../sign/signing-service.ts';
import { SIGNATURES_MAX } from '../verify/verifier.ts';

/** A signature of ML-DSA-87 has 4627 bytes. */
export const SIGNATURE_BYTES_MAX = 8192;
const PUBKEY_BYTES_MAX = 4096;

const strict = { additionalProperties: false } as const;
const audience = (name: Service) => Type.Literal(name);
const literal = (alg: Alg) => Type.Literal(alg);
const base64 = (bytes_max: number) => Type.String({ maxLength: base64Chars(bytes_max) });

const KidText = Type.String({ minLength: 1, maxLength: KID_CHARS_MAX });
const KidParam = Type.Object({ kid: KidText }, strict);
const Tenant = Type.String({ pattern: TENANT_PATTERN });
const OpId = Type.String({ pattern: OP_ID_PATTERN });
const AlgName = Type.Union(ALGS.map((alg) => Type.Literal(alg)) as unknown as [ReturnType<typeof literal>]);
const Mode = Type.Union([Type.Literal('or'), Type.Literal('and'), Type.Literal('pq_only')]);
const Version = Type.Integer({ minimum: 1, maximum: 999_999 });
const PublicPart = Type.Object({ alg: Type.String(), pubkey_b64: Type.String() }, strict);
/** One public key, or the parts of a hybrid key. Symmetric keys have none. */
const Public = Type.Object(
  { alg: Type.String(), pubkey_b64: Type.Optional(Type.String()), parts: Type.Optional(Type.Array(PublicPart)) },
  strict,
);

// Keys.

const CreatedKey = Type.Object({ kid: Type.String(), alg: Type.String(), public: Public }, strict);
const State = Type.Union(
  (['enabled', 'disabled', 'deleting', 'destroying', 'deleted'] as const).map((state) => Type.Literal(state)),
);
const KeyView = Type.Object(
  {
    kid: Type.String(),
    alg: Type.String(),
    state: State,
    deletable_ms: Type.Optional(Type.Integer()),
    versions: Type.Array(Type.String()),
    public: Public,
    attestation_class: Type.String(),
    verify_mode: Mode,
    rotate: Type.Boolean({ description: 'Whether the key may be rotated.' }),
    min_version: Type.Integer(),
    min_version_unwrap: Type.Integer({ description: 'The oldest version that unwraps and derives.' }),
    effective_ms: Type.Optional(
      Type.Integer({ description: 'When min_version_unwrap rises next. Absent if no raise is waiting.' }),
    ),
    deleting: Type.Optional(Type.Array(Type.Object({ version: Type.String(), deletable_ms: Type.Integer() }, strict))),
  },
  strict,
);
const Deletion = Type.Object(
  { kid: Type.String(), state: Type.String(), deletable_ms: Type.Optional(Type.Integer()) },
  strict,
);

export const CREATE = {
  body: Type.Object(
    {
      tenant: Tenant,
      purpose: Type.String({ pattern: PURPOSE_PATTERN }),
      alg: AlgName,
      op_id: Type.Optional(OpId),
      policy: Type.Optional(
        Type.Object(
          {
            verify_mode: Type.Optional(Mode),
            min_version: Type.Optional(Type.Literal(1)),
            rotate: Type.Optional(Type.Boolean({ description: 'false: the key is never rotated. Default true.' })),
          },
          strict,
        ),
      ),
    },
    strict,
  ),
  response: { 201: CreatedKey },
} as const;

export const IMPORT = {
  body: Type.Object(
    { tenant: Tenant, purpose: Type.Literal(RAW_PURPOSE), alg: AlgName, pubkey_b64: base64(PUBKEY_BYTES_MAX) },
    strict,
  ),
  response: { 201: CreatedKey },
} as const;

export const LIST = {
  query: Type.Object(
    {
      tenant: Type.Optional(Tenant),
      prefix: Type.Optional(Type.String({ maxLength: KID_CHARS_MAX })),
      after: Type.Optional(KidText),
      limit: Type.Optional(Type.String({ pattern: '^(?:[1-9][0-9]{0,2}|1000)$' })),
    },
    strict,
  ),
  response: { 200: Type.Object({ keys: Type.Array(KeyView), next: Type.Optional(Type.String()) }, strict) },
} as const;

export const READ = { params: KidParam, response: { 200: KeyView } } as const;

export const ATTESTATION = {
  response: { 200: Type.Object({ attestation_class: Type.String(), attestation: Type.Unsafe({}) }, strict) },
} as const;

export const ROTATE = {
  params: KidParam,
  body: Type.Union([Type.Object({ op_id: Type.Optional(OpId) }, strict), Type.Null()]),
  response: {
    200: Type.Object({ kid: Type.String(), previous: Type.String(), alg: Type.String(), public: Public }, strict),
  },
} as const;

export const POLICY = {
  params: KidParam,
  body: Type.Object({ min_version: Version }, strict),
  response: { 200: KeyView },
} as const;

export const DISABLE = { params: KidParam, response: { 200: KeyView } } as const;

export const DELETE = {
  params: KidParam,
  body: Type.Union([Type.Object({ whole: Type.Optional(Type.Boolean()) }, strict), Type.Null()]),
  response: { 200: Deletion, 202: Deletion },
} as const;
export const RESTORE = { params: KidParam, response: { 200: Deletion } } as const;

// Signatures.

const PayloadB3 = Type.String({ pattern: '^[0-9a-f]{64}$', description: 'BLAKE3 of the payload, bare hex.' });
const MessageB64 = base64(MESSAGE_BYTES_MAX);
const itemMembers = {
  kid: Type.Optional(KidText),
  kid_set: Type.Optional(Type.Array(KidText, { minItems: 1, maxItems: KID_SET_MAX })),
  payload_b3: Type.Optional(PayloadB3),
  message_b64: Type.Optional(MessageB64),
  op_id: Type.Optional(OpId),
};
export const Item = Type.Object(itemMembers, strict);
export const SignBody = Type.Object(
  {
    ...itemMembers,
    wait: Type.Optional(Type.Literal('checkpoint')),
    items: Type.Optional(Type.Array(Item, { minItems: 1, maxItems: ITEMS_MAX })),
  },
  strict,
);
const signedMembers = {
  kid: Type.String(),
  sigs: Type.Array(Type.Object({ kid: Type.String(), alg: Type.String(), signature_b64: Type.String() }, strict)),
  log_index: Type.Optional(Type.Integer()),
  proof: Type.Optional(Type.Unsafe<unknown>({})),
};

export const SIGN = {
  body: SignBody,
  response: {
    200: Type.Object(
      {
        kid: Type.Optional(Type.String()),
        sigs: Type.Optional(signedMembers.sigs),
        log_index: signedMembers.log_index,
        proof: signedMembers.proof,
        items: Type.Optional(Type.Array(Type.Object(signedMembers, strict))),
      },
      strict,
    ),
  },
} as const;

const GivenSignature = Type.Object(
  {
    kid: Type.Optional(KidText),
    alg: Type.String({ maxLength: 16 }),
    signature_b64: base64(SIGNATURE_BYTES_MAX),
  },
  strict,
);

export const VERIFY = {
  body: Type.Object(
    {
      kid: KidText,
      payload_b3: Type.Optional(PayloadB3),
      message_b64: Type.Optional(MessageB64),
      sigs: Type.Array(GivenSignature, { minItems: 1, maxItems: SIGNATURES_MAX }),
      policy: Type.Optional(Type.Object({ mode: Type.Optional(Mode) }, strict)),
    },
    strict,
  ),
  response: {
    200: Type.Object(
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
    ),
  },
} as const;

// Secrets.

const Aad = Type.Optional(base64(AAD_BYTES_MAX));
const wrappedMembers = { kid: Type.String(), alg: Type.String(), wrapped_b64: Type.String() };
const plaintextMembers = { plaintext_key_b64: Type.String() };

export const WRAP = {
  body: Type.Object({ kid: KidText, plaintext_key_b64: base64(PLAINTEXT_BYTES_MAX), aad_b64: Aad }, strict),
  response: { 200: Type.Object(wrappedMembers, strict) },
} as const;

export const UNWRAP = {
  body: Type.Object({ kid: KidText, wrapped_b64: base64(WRAPPED_BYTES_MAX), aad_b64: Aad }, strict),
  response: { 200: Type.Object(plaintextMembers, strict) },
} as const;

export const DATA_KEY = {
  body: Type.Object({ kid: KidText, aad_b64: Aad }, strict),
  response: { 200: Type.Object({ ...wrappedMembers, ...plaintextMembers }, strict) },
} as const;

export const DERIVE = {
  body: Type.Object({ kid: KidText, label: Type.String({ pattern: LABEL_PATTERN }) }, strict),
  response: {
    200: Type.Object({ kid: Type.String(), min_version: Type.Integer(), secret_b64: Type.String() }, strict),
  },
} as const;

// The audience root.

const Audience = Type.Union(SERVICES.map(audience) as unknown as [ReturnType<typeof audience>]);
const RootState = Type.Object({ version: Type.Integer(), min_version: Type.Integer(), root_id: Type.String() }, strict);

export const AUDIENCE_STATE = { response: { 200: RootState } } as const;

export const AUDIENCE_DERIVE = {
  body: Type.Object({ audience: Audience, version: Type.Optional(Version) }, strict),
  response: {
    200: Type.Object({ version: Type.Integer(), min_version: Type.Integer(), secret_b64: Type.String() }, strict),
  },
} as const;

export const AUDIENCE_ROTATE = {
  body: Type.Object({ version: Version }, strict),
  response: { 200: RootState },
} as const;

export const AUDIENCE_RETIRE = {
  body: Type.Object({ min_version: Version }, strict),
  response: { 200: RootState },
} as const;

// Entries of other services.

const Name = Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' });
const CapabilityId = Type.String({ pattern: CAPABILITY_ID_PATTERN });
const Time = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
const entryMembers = {
  op_id: OpId,
  time_ms: Time,
  by: Type.Object(
    {
      capability_id: CapabilityId,
      subject: Name,
      chain: Type.Array(CapabilityId, { maxItems: CAPABILITY_LIMITS.chain_max }),
    },
    strict,
  ),
};

export const ENTRY = {
  body: Type.Union([
    Type.Object(
      {
        ...entryMembers,
        op: Type.Literal('issue'),
        capability_id: CapabilityId,
        subject: Name,
        audience: Audience,
        scopes: Type.Array(Type.String({ pattern: '^[a-z]{1,32}:[a-z]{1,32}$' }), { minItems: 1, maxItems: 32 }),
        expires_ms: Time,
      },
      strict,
    ),
    Type.Object(
      {
        ...entryMembers,
        op: Type.Literal('revoke'),
        subject: Type.Optional(Name),
        capability_id: Type.Optional(CapabilityId),
        epoch: Time,
        missed: Type.Optional(Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })),
      },
      strict,
    ),
  ]),
  response: { 200: Type.Object({ log_index: Type.Integer() }, strict) },
} as const;

// The audit log.

const TreeSize = Type.String({ pattern: '^[1-9][0-9]{0,14}$' });

export const LOG_KEYS = {
  response: { 200: Type.Object({ origin: Type.String(), vkeys: Type.Array(Type.String()) }, strict) },
} as const;

const Extent = Type.Object({ origin: Type.String(), size: Type.Integer(), root_b64: Type.String() }, strict);

export const STATUS = {
  response: {
    200: Type.Object(
      {
        origin: Type.String(),
        problem: Type.Optional(Type.String()),
        problem_sha256: Type.Optional(Type.String()),
        known: Type.Optional(Extent),
        found: Type.Optional(Extent),
        next_origin: Type.Optional(Type.String()),
      },
      strict,
    ),
  },
} as const;

export const ACCEPT = {
  body: Type.Object(
    {
      problem_sha256: Type.String({ pattern: '^[0-9a-f]{64}$' }),
      reason: Type.String({ minLength: 1, maxLength: 1024 }),
    },
    strict,
  ),
  response: { 202: Type.Object({ next_origin: Type.String(), archive: Type.Optional(Type.String()) }, strict) },
} as const;

export const PRUNED = {
  response: { 200: Type.Object({ before: Type.Integer(), entry: Type.Integer() }, strict) },
} as const;

export const PRUNE = {
  body: Type.Object({ before: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }) }, strict),
  response: {
    200: Type.Object({ before: Type.Integer(), freed_bytes: Type.Integer(), log_bytes: Type.Integer() }, strict),
  },
} as const;

export const TILE = { params: Type.Object({ '*': Type.String({ maxLength: 128 }) }, strict) } as const;

export const PROOF = {
  params: Type.Object({ log_index: Type.String({ pattern: '^(?:0|[1-9][0-9]{0,14})$' }) }, strict),
  response: {
    200: Type.Object(
      {
        log_index: Type.Integer(),
        tree_size: Type.Integer(),
        leaf_hash_b64: Type.String(),
        path_b64: Type.Array(Type.String()),
        entry_b64: Type.String(),
        checkpoint: Type.String(),
      },
      strict,
    ),
  },
} as const;

export const CONSISTENCY = {
  params: Type.Object({ from: TreeSize, to: TreeSize }, strict),
  response: {
    200: Type.Object({ from: Type.Integer(), to: Type.Integer(), path_b64: Type.Array(Type.String()) }, strict),
  },
} as const;
