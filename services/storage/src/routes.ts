/** The HTTP surface of storage. */
import type { ObjectStore, Volume } from '@ron/cas';
import { RonError } from '@ron/kernel';
import { ADDRESS_PATTERN } from '@ron/proto';
import { bytes, empty, json, route, type Answer, type Route, type RouteContext } from '@ron/ingress';
import { Type } from 'typebox';
import {
  addressFrom,
  byteSource,
  durabilityHeader,
  mediaTypeFrom,
  openObject,
  proofSource,
  receiptOf,
  storeBody,
  type Durability,
} from './objects.ts';

const strict = { additionalProperties: false } as const;
const Whole = Type.String({ pattern: '^[0-9]{1,15}$', description: 'A number of bytes.' });
const Addr = Type.Object({ addr: Type.String({ maxLength: 256 }) }, strict);
const GetQuery = Type.Object(
  { proof: Type.Optional(Type.Literal('bao')), offset: Type.Optional(Whole), length: Type.Optional(Whole) },
  strict,
);
const DurabilitySchema = Type.Object({ fsynced: Type.Boolean(), copies: Type.Integer(), target: Type.Integer() });
const ReceiptSchema = Type.Object({
  address: Type.String({ pattern: ADDRESS_PATTERN }),
  size: Type.Integer(),
  durability: DurabilitySchema,
});
const ManifestSchema = Type.Object({
  address: Type.String(),
  size: Type.Integer(),
  chunk_bytes: Type.Integer(),
  chunks: Type.Array(Type.String()),
  subtrees: Type.Array(Type.String()),
  media_type: Type.String(),
  durability: DurabilitySchema,
});

/** A manifest of more chunks than this (64 GiB of data) is not one message any more. */
const MANIFEST_CHUNKS_MAX = 1_048_576;

export interface StorageRoutesInit {
  readonly store: ObjectStore;
  readonly volume: Volume;
  /** Whether reads need a capability. */
  readonly guardReads: boolean;
  readonly durability: () => Durability;
  /** Told of each object that a request opened, so that the next one is answered from RAM. */
  readonly onOpened: (target: string, object: Awaited<ReturnType<typeof openObject>>) => void;
}

type Facts = NonNullable<Route['facts']>;
const byAddress: Facts = ({ params }) => ({ address: params['addr'] });

export function routes(init: StorageRoutesInit): Route[] {
  return [...readRoutes(init), ...writeRoutes(init), ...pinRoutes(init), ...adminRoutes(init)];
}

function readRoutes({ store, guardReads, durability, onOpened }: StorageRoutesInit): Route[] {
  const read = {
    scope: guardReads ? 'storage:get' : null,
    lane: 'get',
    body: 'none',
    deadline: 'get',
    facts: byAddress,
  } as const;
  return [
    route({
      ...read,
      method: 'GET',
      path: '/o/:addr',
      summary: 'An object, a range of it, or with proof=bao a slice that proves itself against the address.',
      schema: { params: Addr, query: GetQuery },
      handler: async ({ params, query, deadline }) => {
        const address = addressFrom(params.addr);
        requireProofForRange(query);
        const object = await openObject(store, address, deadline.signal);
        if (query.proof === undefined) {
          onOpened(`/o/${address}`, object);
          return bytes(byteSource(object));
        }
        return bytes(proofSource(object, Number(query.offset ?? 0), Number(query.length ?? object.size)));
      },
    }),
    route({
      ...read,
      method: 'GET',
      path: '/o/:addr/manifest',
      summary: 'What the object is made of: the ids of its chunks and their subtree values.',
      schema: { params: Addr, response: { 200: ManifestSchema } },
      handler: async ({ params, deadline }) => {
        const object = await openObject(store, addressFrom(params.addr), deadline.signal);
        const document = await object.document(MANIFEST_CHUNKS_MAX, deadline.signal);
        return json(200, { ...document, durability: durability() });
      },
    }),
  ];
}

function requireProofForRange(query: { proof?: string; offset?: string; length?: string }): void {
  if (query.proof === undefined && (query.offset !== undefined || query.length !== undefined)) {
    throw new RonError('bad_request', 'offset and length belong to proof=bao; for plain bytes use the Range header');
  }
}

function writeRoutes(init: StorageRoutesInit): Route[] {
  const write = { scope: 'storage:put', lane: 'put', body: 'stream', deadline: 'put' } as const;
  const response = { 200: ReceiptSchema, 201: ReceiptSchema };
  return [
    route({
      ...write,
      method: 'PUT',
      path: '/o/:addr',
      summary: 'Stores the bytes that have this address; any others are refused and nothing of them is kept.',
      facts: byAddress,
      schema: { params: Addr, response },
      handler: (context) => put(init, context, addressFrom(context.params.addr)),
    }),
    route({
      ...write,
      method: 'POST',
      path: '/o',
      summary: 'Stores bytes and tells their address.',
      facts_later: ['address'],
      schema: { response },
      handler: (context) => put(init, context, undefined),
    }),
  ];
}

async function put(
  { store, durability }: StorageRoutesInit,
  context: Pick<RouteContext, 'stream' | 'headers' | 'deadline' | 'actsOn'>,
  expected: ReturnType<typeof addressFrom> | undefined,
): Promise<Answer> {
  const media_type = mediaTypeFrom(context.headers['content-type']);
  const onAddress = expected === undefined ? (address: string) => context.actsOn({ address }) : undefined;
  const written = await storeBody(
    store,
    context.stream,
    { expected, media_type, onAddress },
    () => context.deadline.signal,
  );
  const receipt = receiptOf(written, durability());
  return json(written.existed ? 200 : 201, receipt, {
    Location: `/o/${written.address}`,
    'Ron-Durability': durabilityHeader(receipt.durability),
  });
}

function pinRoutes({ store }: StorageRoutesInit): Route[] {
  const pin = { path: '/o/:addr/pin', scope: 'storage:pin', lane: 'put', body: 'none', deadline: 'put' } as const;
  return [
    route({
      ...pin,
      method: 'PUT',
      summary: 'Keeps the object when what is not pinned is reclaimed.',
      facts: byAddress,
      schema: { params: Addr },
      handler: async ({ params, deadline }) => {
        await store.pin(addressFrom(params.addr), deadline.signal);
        return empty(204);
      },
    }),
    route({
      ...pin,
      method: 'DELETE',
      summary: 'Takes the pin away.',
      facts: byAddress,
      schema: { params: Addr },
      handler: async ({ params, deadline }) => {
        await store.unpin(addressFrom(params.addr), deadline.signal);
        return empty(204);
      },
    }),
  ];
}

function adminRoutes({ volume, store }: StorageRoutesInit): Route[] {
  return [
    route({
      method: 'GET',
      path: '/admin/volumes',
      summary: 'The volumes, their state and what they hold.',
      scope: 'storage:admin',
      lane: 'inline',
      body: 'none',
      handler: () =>
        json(200, {
          volumes: [{ name: volume.name, domain: volume.domain, ...volume.state, ...volume.stats() }],
          cache: { used_bytes: store.cache.used_bytes, bytes_max: store.cache.bytes_max },
        }),
    }),
  ];
}
