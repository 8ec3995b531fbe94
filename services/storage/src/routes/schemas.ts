/** Schemas of the routes. `Fields` keeps each of them equal to the contract in proto. */
import {
  ADDRESS_PATTERN,
  type Durability,
  type ObjectManifest,
  type ObjectReceipt,
  type RepairStatus,
  type ScrubInfo,
  type VolumeInfo,
  type VolumesAnswer,
} from '@ron/proto';
import { Type, type JsonSchema } from '@ron/ingress';

/** Exactly one schema for each field of `T`. */
type Fields<T> = Record<keyof T, JsonSchema>;

const strict = { additionalProperties: false } as const;
const Count = Type.Integer();

/** Longer than an address, so that the handler can say why one is not valid. */
export const Addr = Type.Object({ addr: Type.String({ maxLength: 256 }) }, strict);

const Bytes = Type.String({ pattern: '^[0-9]{1,15}$', description: 'A number of bytes.' });
export const GetQuery = Type.Object(
  { proof: Type.Optional(Type.Literal('bao')), offset: Type.Optional(Bytes), length: Type.Optional(Bytes) },
  strict,
);

const DurabilitySchema = Type.Object(
  { fsynced: Type.Boolean(), copies: Count, target: Count } satisfies Fields<Durability>,
  strict,
);

export const Receipt = Type.Object(
  {
    address: Type.String({ pattern: ADDRESS_PATTERN }),
    size: Count,
    durability: DurabilitySchema,
  } satisfies Fields<ObjectReceipt>,
  strict,
);

export const Manifest = Type.Object(
  {
    address: Type.String(),
    size: Count,
    chunk_bytes: Count,
    chunks: Type.Array(Type.String()),
    subtrees: Type.Array(Type.String()),
    media_type: Type.String(),
    durability: DurabilitySchema,
  } satisfies Fields<ObjectManifest>,
  strict,
);

export const UploadId = Type.Object({ id: Type.String({ maxLength: 64 }) }, strict);
export const UploadStatus = Type.Object(
  {
    id: Type.String(),
    offset: Count,
    size: Type.Optional(Count),
    expires_ms: Count,
    address: Type.Optional(Type.String()),
  },
  strict,
);

export const Repair = Type.Object(
  {
    target: Count,
    observed: Count,
    deficit: Count,
    deficit_by_class: Type.Object({ last: Count, rf: Count, parity: Count }, strict),
    crowded: Count,
    broken: Type.Optional(Count),
    records: Count,
    is_complete: Type.Boolean(),
    is_planning: Type.Boolean(),
    planned_ms: Type.Optional(Count),
    unreadable: Type.Array(Type.String()),
    problems: Type.Array(Type.String()),
    queued: Count,
    inflight: Count,
    skipped_total: Count,
    results: Type.Object({ repaired: Count, whole: Count, gone: Count, failed: Count }, strict),
    bytes_total: Count,
    rate_bytes_per_s: Type.Number(),
    allowed_bytes_per_s: Type.Number(),
    stripes: Type.Optional(
      Type.Object(
        { objects: Count, stripes: Count, failed: Count, lone: Count, problem: Type.Optional(Type.String()) },
        strict,
      ),
    ),
  } satisfies Fields<RepairStatus>,
  strict,
);

const VolumeSchema = Type.Object(
  {
    id: Type.Optional(Type.String()),
    name: Type.String(),
    domain: Type.String(),
    weight: Type.Number(),
    life: Type.String(),
    condition: Type.String(),
    reason: Type.String(),
    is_current: Type.Boolean(),
    used_bytes: Count,
    segments: Count,
  } satisfies Fields<VolumeInfo>,
  strict,
);
const ScrubSchema = Type.Object(
  {
    name: Type.String(),
    used_bytes: Count,
    pass: Count,
    is_running: Type.Boolean(),
    records: Count,
    bytes: Count,
    bad: Count,
    begun_s: Count,
    ended_s: Count,
    problem: Type.Optional(Type.String()),
    late: Type.Optional(Type.String()),
  } satisfies Fields<ScrubInfo>,
  strict,
);
export const Volumes = Type.Object(
  {
    volumes: Type.Array(VolumeSchema),
    scrubs: Type.Array(ScrubSchema),
    incomplete: Type.Optional(Type.String()),
    cache: Type.Object({ used_bytes: Count, bytes_max: Count }, strict),
  } satisfies Fields<VolumesAnswer>,
  strict,
);

const Name = Type.String({ minLength: 1, maxLength: 1024, description: 'The directory of a volume, or its id.' });
export const VolumeName = Type.Object({ volume: Name }, strict);
export const VolumeRemoval = Type.Object(
  { volume: Name, force: Type.Optional(Type.Union([Type.Literal('true'), Type.Literal('false')])) },
  strict,
);
