/** `POST /announce`: storage reports its objects, so that this node is a provider of them. */
import { json, Type, type JsonSchema, type RouteAnswer, type RouteContext } from '@ron/ingress';
import { isRonError, RonError, sched } from '@ron/kernel';
import {
  ADDRESS_PATTERN,
  ANNOUNCE_ENTRIES_MAX,
  type Address,
  type AnnounceDto,
  type AnnouncedDto,
  type AnnounceEntry,
  type AnnounceRange,
} from '@ron/proto';
import type { IndexStore } from '../store/index-store.ts';

export interface AnnounceInit {
  readonly store: Pick<IndexStore, 'announce' | 'epoch'>;
  /**
   * Called after the commit and before the answer: outdates cached answers and running lookups, and announces new objects in
   * the DHT. Synchronous.
   */
  readonly onAnnounced: (announced: Announced) => void;
  /** Called before the answer if objects may have been withdrawn that are not known here: outdates all answers. */
  readonly onUncertain: () => void;
}

export interface Announced {
  /** All addresses of the request, and those that its range withdrew. */
  readonly changed: readonly Address[];
  /** Objects that this node did not provide before. */
  readonly added: readonly Address[];
}

const strict = { additionalProperties: false } as const;
const AddressSchema = Type.Unsafe<Address>({ type: 'string', pattern: ADDRESS_PATTERN });
const Limit = Type.Unsafe<Address | null>({ anyOf: [{ type: 'string', pattern: ADDRESS_PATTERN }, { type: 'null' }] });

const EntrySchema = Type.Object(
  {
    address: AddressSchema,
    size: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    // As in an HTTP header: commands print it.
    media_type: Type.String({ minLength: 1, maxLength: 255, pattern: '^[\\t\\x20-\\x7e]+$' }),
  } satisfies Record<keyof AnnounceEntry, JsonSchema>,
  strict,
);

/** A URL is an unknown member: the provider of an own object is always this node. */
export const AnnounceSchema = Type.Object(
  {
    entries: Type.Array(EntrySchema, { maxItems: ANNOUNCE_ENTRIES_MAX }),
    withdraw: Type.Optional(Type.Array(AddressSchema, { maxItems: ANNOUNCE_ENTRIES_MAX })),
    range: Type.Optional(
      Type.Object({ after: Limit, through: Limit } satisfies Record<keyof AnnounceRange, JsonSchema>, strict),
    ),
  } satisfies Record<keyof AnnounceDto, JsonSchema>,
  strict,
);
export const AnnouncedSchema = Type.Object(
  { epoch: Type.String() } satisfies Record<keyof AnnouncedDto, JsonSchema>,
  strict,
);

type Context = Pick<RouteContext, 'grant'> & { readonly body: AnnounceDto };

/** Idempotent. Lookups that began before the commit are outdated before the answer is sent. */
export async function announce(
  { store, onAnnounced, onUncertain }: AnnounceInit,
  context: Context,
): Promise<RouteAnswer> {
  const { entries, withdraw = [], range } = context.body;
  requireConsistent(context.body);
  const { subject } = context.grant!;
  const announced = entries.map(({ address }) => address);
  try {
    const { added, withdrawn } = await store.announce(subject, entries, withdraw, sched.wall_ms(), range);
    // The repetition of a call that took effect late adds and withdraws nothing any more.
    const isUncertain = uncertain.delete(store);
    onAnnounced({ added: isUncertain ? announced : added, changed: [...announced, ...withdraw, ...withdrawn] });
    if (isUncertain) onUncertain();
  } catch (error) {
    if (!isRonError(error, 'storage_full') && !isRonError(error, 'busy')) {
      uncertain.add(store);
      onAnnounced({ added: announced, changed: [...announced, ...withdraw] });
    }
    throw error;
  }
  return json(200, { epoch: store.epoch } satisfies AnnouncedDto);
}

/** Databases whose last announcement failed and may take effect later. Writes are applied in order, so the next success ends it. */
const uncertain = new WeakSet<object>();

function requireConsistent({ entries, withdraw = [], range }: AnnounceDto): void {
  const announced = new Set(entries.map(({ address }) => address));
  if (withdraw.some((address) => announced.has(address)))
    throw new RonError('validation', 'an address is announced and withdrawn in one request');
  const { after = null, through = null } = range ?? {};
  if (after !== null && through !== null && after >= through)
    throw new RonError('validation', 'the range is empty: `after` must be less than `through`');
}
