/** Schemas of the answers of `GET /receipts/{id}`. Only these fields are serialized. */
import { Type } from '@ron/ingress';
import {
  ADDRESS_PATTERN,
  PROVIDER_PATTERN,
  SCHEMES,
  ULID_PATTERN,
  type AuditProof,
  type ReceiptSignature,
  type ReceiptTree,
  type SignedReceipt,
  type UnsignedReceipt,
  type WebhookReceipt,
} from '@ron/proto';
import type { Fields } from './fields.ts';

const strict = { additionalProperties: false } as const;
const Count = Type.Integer({ minimum: 0 });
const Hash = Type.String({ pattern: '^[0-9a-f]{64}$' });

const Receipt = Type.Object(
  {
    id: Type.String({ pattern: ULID_PATTERN }),
    provider: Type.String({ pattern: PROVIDER_PATTERN }),
    scheme: Type.Union(SCHEMES.map((name) => Type.Literal(name))),
    secret_version: Count,
    delivery_id: Type.Optional(Type.String()),
    received_ms: Count,
    b3: Type.String({ pattern: ADDRESS_PATTERN }),
    bytes: Count,
    topic: Type.String(),
  } satisfies Fields<WebhookReceipt>,
  strict,
);

const Tree = Type.Object(
  { size: Count, index: Count, leaf: Hash, path: Type.Array(Hash), root: Hash } satisfies Fields<ReceiptTree>,
  strict,
);

const Signature = Type.Object(
  { kid: Type.String(), alg: Type.String(), signature_b64: Type.String() } satisfies Fields<ReceiptSignature>,
  strict,
);

const LogProof = Type.Object(
  {
    log_index: Count,
    tree_size: Count,
    leaf_hash_b64: Type.String(),
    path_b64: Type.Array(Type.String()),
    entry_b64: Type.String(),
    checkpoint: Type.String({ description: 'A signed note.' }),
  } satisfies Fields<AuditProof>,
  strict,
);

export const SignedAnswer = Type.Object(
  {
    receipt: Receipt,
    tree: Tree,
    kid: Type.String(),
    sigs: Type.Array(Signature),
    log_index: Type.Optional(Count),
    log_proof: Type.Optional(LogProof),
  } satisfies Fields<SignedReceipt>,
  strict,
);

export const UnsignedAnswer = Type.Object({ receipt: Receipt } satisfies Fields<UnsignedReceipt>, strict);
