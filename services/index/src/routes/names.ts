/** Handlers of names: read, publish, list. */
import { json, Type, type JsonSchema, type RouteAnswer, type RouteContext, type RouteSchema } from '@ron/ingress';
import { isRonError, RonError } from '@ron/kernel';
import {
  checkLabel,
  checkName,
  formatTarget,
  isLabelPrefix,
  isNameKey,
  LABEL_BYTES_MAX,
  type NameDto,
  type NamePageDto,
  type SignedNameDto,
} from '@ron/proto';
import { decodeNameRecord, NAME_RECORD_BYTES_MAX, NAME_SIGNATURE_BYTES } from '@ron/proto/names';
import { nameDto } from '../publish/name-dto.ts';
import type { Names } from '../publish/names.ts';
import { missing } from '../resolve/refusals.ts';
import { HISTORY_MAX, type IndexStore, type StoredName } from '../store/index-store.ts';
import { callerOf } from './admin.ts';
import { waitFor, type LookupRouteInit } from './lookup.ts';

export interface NameRoutesInit extends LookupRouteInit {
  readonly names: Pick<Names, 'keyFor' | 'publish'>;
  readonly store: Pick<IndexStore, 'history' | 'name' | 'names'>;
}

const PAGE_DEFAULT = 100;
const PAGE_MAX = 1000;
const KEY_CHARS = 64;
/** A label, `@` and a key. */
const NAME_CHARS_MAX = LABEL_BYTES_MAX + 1 + KEY_CHARS;
/** Records change at any time; clients revalidate. */
const FRESH = { 'Cache-Control': 'no-cache' } as const;
const NO_STORE = { 'Cache-Control': 'no-store' } as const;

const strict = { additionalProperties: false } as const;
const base64url = (bytes: number) =>
  Type.String({ pattern: '^[A-Za-z0-9_-]*$', maxLength: Math.ceil((bytes * 4) / 3) });
const orNull = (text: string) => Type.Unsafe<string | null>({ type: ['string', 'null'], description: text });

const SIGNED = {
  record: base64url(NAME_RECORD_BYTES_MAX),
  signature: base64url(NAME_SIGNATURE_BYTES),
} satisfies Record<keyof SignedNameDto, JsonSchema>;
const Signed = Type.Object(SIGNED, strict);

export const NameSchema = Type.Object(
  {
    ...SIGNED,
    key: Type.String(),
    label: Type.String(),
    address: orNull('null if the record removes or moves the name'),
    seq: Type.Integer(),
    not_after: Type.Integer({ description: 'Unix seconds' }),
    ttl_s: Type.Integer(),
    previous: orNull('the BLAKE3 hash of the previous record'),
    moved_to: orNull('the key that holds the label from now on'),
    hash: Type.String({ description: 'the BLAKE3 hash of this record' }),
    conflict: Type.Boolean({ description: 'two valid records contradict each other; `rival` is the other one' }),
    rival: Type.Optional(Signed),
    history: Type.Optional(Type.Array(Signed)),
  } satisfies Record<keyof NameDto, JsonSchema>,
  strict,
);

const NameParam = Type.Object({ '*': Type.String({ maxLength: NAME_CHARS_MAX }) }, strict);
const Flag = Type.Optional(Type.String({ pattern: '^[01]$' }));

export const READ_NAME = {
  params: NameParam,
  query: Type.Object({ history: Flag }, strict),
  response: { 200: NameSchema },
} as const satisfies RouteSchema;

export const PUT_NAME = {
  params: NameParam,
  body: Signed,
  response: { 200: NameSchema, 201: NameSchema },
} as const satisfies RouteSchema;

export const LIST_NAMES = {
  query: Type.Object(
    {
      prefix: Type.Optional(Type.String({ maxLength: LABEL_BYTES_MAX, description: 'whole segments' })),
      after: Type.Optional(Type.String({ maxLength: NAME_CHARS_MAX, description: '`next` of the page before' })),
      limit: Type.Optional(Type.String({ pattern: '^[1-9][0-9]{0,3}$', description: `at most ${PAGE_MAX}` })),
    },
    strict,
  ),
  response: { 200: Type.Object({ names: Type.Array(NameSchema), next: Type.Optional(Type.String()) }, strict) },
} as const satisfies RouteSchema;

/** The current record, even if it removes the name or has expired: the caller verifies it, and a publisher continues from it. */
export async function readName(init: NameRoutesInit, context: RouteContext<typeof READ_NAME>): Promise<RouteAnswer> {
  const { names, store } = init;
  const { params, query } = context;
  const { label, key: given } = nameIn(params['*']);
  const key = given ?? names.keyFor(label);
  if (key === undefined) throw missing('untrusted_name');
  const refusal = await lookUp(init, context, label, key);
  const name = await store.name(key, label);
  if (refusal !== undefined && name?.isOwn !== true && refusal.code !== 'not_found') throw refusal;
  if (name === undefined) throw refusal ?? missing('unknown_name');
  const history = query.history === '1' ? await store.history(key, label, HISTORY_MAX) : undefined;
  return json(200, nameDto(name, history), FRESH);
}

/**
 * In a network, a lookup of the name, as `GET /resolve` makes it: it saves the current record in the database. None is made
 * while its answer is cached. Returns its refusal: removed and expired records are answers here, and an own record needs no peer.
 */
async function lookUp(
  init: NameRoutesInit,
  context: RouteContext<typeof READ_NAME>,
  label: string,
  key: string,
): Promise<RonError | undefined> {
  const { cache, isStandalone, lookups } = init.resolving;
  const target = { kind: 'name', label, key } as const;
  if (isStandalone || cache.get(formatTarget(target)) !== undefined) return undefined;
  const wanted = { lane: '/resolve', target, mode: 'usual' } as const;
  try {
    await waitFor(init, context, wanted, (request) => lookups.find(request));
    return undefined;
  } catch (error) {
    if (!isRonError(error) || context.deadline.signal.aborted) throw error;
    return error;
  }
}

export async function putName(
  { names }: NameRoutesInit,
  { params, body, grant, deadline }: RouteContext<typeof PUT_NAME>,
): Promise<RouteAnswer> {
  const label = labelIn(params['*']);
  const record = Buffer.from(body.record, 'base64url');
  const decoded = decodeNameRecord(record);
  if (!decoded.ok) throw new RonError('validation', decoded.problem);
  // The capability was checked against the label of the path.
  if (decoded.record.label !== label) throw new RonError('validation', 'the record is of another label than the path');
  const signature = Buffer.from(body.signature, 'base64url');
  const { name, isNew } = await names.publish(record, signature, callerOf(grant), deadline.signal);
  return json(isNew ? 201 : 200, nameDto(name), NO_STORE);
}

/** Own names, in the order of label and key. */
export async function listNames(
  { store }: NameRoutesInit,
  { query }: RouteContext<typeof LIST_NAMES>,
): Promise<RouteAnswer> {
  const { prefix = '', after } = query;
  if (!isLabelPrefix(prefix)) throw new RonError('bad_request', 'prefix must be empty or whole segments of a label');
  const limit = Math.min(Number(query.limit ?? PAGE_DEFAULT), PAGE_MAX);
  const found = await store.names(prefix, after === undefined ? undefined : positionIn(after), limit);
  const page: NamePageDto = { names: found.map((name) => nameDto(name)), ...nextOf(found, limit) };
  return json(200, page, NO_STORE);
}

function nextOf(found: readonly StoredName[], limit: number): { readonly next?: string } {
  const last = found.at(-1);
  return last === undefined || found.length < limit ? {} : { next: `${last.label}@${last.key}` };
}

function positionIn(after: string): { label: string; key: string } {
  const { label, key } = nameIn(after);
  if (!isNameKey(key)) throw new RonError('bad_request', '`after` must be `next` of the page before');
  return { label, key };
}

/** Throws `bad_request` with the reason. */
function nameIn(text: string): { readonly label: string; readonly key: string | undefined } {
  const result = checkName(text);
  if (!result.ok) throw new RonError('bad_request', result.problem);
  return result.target as Extract<typeof result.target, { kind: 'name' }>;
}

function labelIn(text: string): string {
  const result = checkLabel(text);
  if (!result.ok) throw new RonError('bad_request', result.problem);
  return result.label;
}
