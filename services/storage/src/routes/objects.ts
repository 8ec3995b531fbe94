/** Objects: read whole, in ranges or with a proof; their manifests; stored by address or to learn it. */
import type { ObjectStore, StoredObject } from '@ron/cas';
import { bytes, json, route, type RouteAnswer, type Route, type RouteContext } from '@ron/ingress';
import { RonError, sched, type Deadline } from '@ron/kernel';
import { formatDurability, type Address, type ObjectManifest } from '@ron/proto';
import { Type } from 'typebox';
import { receiptDurability, type DurabilityMeter } from '../objects/durability-meter.ts';
import type { Foreground } from '../objects/foreground.ts';
import { manifestSource } from '../objects/manifest-document.ts';
import {
  addressFrom,
  byteSource,
  mediaTypeFrom,
  openObject,
  proofSource,
  receiptOf,
  storeBody,
  storeWhole,
} from '../objects/objects.ts';
import { Addr, byAddress, DurabilitySchema, ReceiptSchema, strict, type Fields } from './schemas.ts';

const Whole = Type.String({ pattern: '^[0-9]{1,15}$', description: 'A number of bytes.' });
const GetQuery = Type.Object(
  { proof: Type.Optional(Type.Literal('bao')), offset: Type.Optional(Whole), length: Type.Optional(Whole) },
  strict,
);
const ManifestSchema = Type.Object(
  {
    address: Type.String(),
    size: Type.Integer(),
    chunk_bytes: Type.Integer(),
    chunks: Type.Array(Type.String()),
    subtrees: Type.Array(Type.String()),
    media_type: Type.String(),
    durability: DurabilitySchema,
  } satisfies Fields<ObjectManifest>,
  strict,
);

/** Bodies up to this size, and to one chunk, are complete before a worker takes them. */
const GATHER_BYTES_MAX = 64 * 1024;

export interface ObjectRoutesInit {
  readonly store: ObjectStore;
  /** Whether reads need a capability. */
  readonly guardReads: boolean;
  readonly meter: DurabilityMeter;
  /** A fresh budget for what the disk takes, within that of the request. */
  readonly putStep: (parent: Deadline) => Deadline;
  /** Measures how long clients wait. */
  readonly foreground: Foreground;
  /** Called for each object that a request opened, so that the next request is answered from memory. */
  readonly onOpened: (object: StoredObject) => void;
}

export function objectRoutes(init: ObjectRoutesInit): Route[] {
  return [...readRoutes(init), ...writeRoutes(init)];
}

function readRoutes({ store, guardReads, meter, foreground, onOpened }: ObjectRoutesInit): Route[] {
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
        const began_ms = sched.now_ms();
        const isPlain = query.proof === undefined;
        const object = await openObject(store, address, deadline.signal, isPlain ? onOpened : undefined);
        const source = isPlain
          ? byteSource(object)
          : proofSource(object, Number(query.offset ?? 0), Number(query.length ?? object.size));
        return bytes(foreground.watchRead(source, sched.now_ms() - began_ms));
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
        return bytes(manifestSource(object, meter));
      },
    }),
  ];
}

function requireProofForRange(query: { proof?: string; offset?: string; length?: string }): void {
  if (query.proof === undefined && (query.offset !== undefined || query.length !== undefined)) {
    throw new RonError('bad_request', 'offset and length belong to proof=bao; for plain bytes use the Range header');
  }
}

function writeRoutes(init: ObjectRoutesInit): Route[] {
  const write = {
    scope: 'storage:put',
    lane: 'put',
    // No total budget: a body may take as long as its client keeps sending.
    body: 'stream',
    body_bytes_max: init.store.object_bytes_max,
    gather_bytes_max: Math.min(init.store.chunk_bytes, GATHER_BYTES_MAX),
  } as const;
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
  { store, meter, putStep, foreground }: ObjectRoutesInit,
  context: PutContext,
  expected: Address | undefined,
): Promise<RouteAnswer> {
  const { body_bytes, headers, deadline } = context;
  const media_type = mediaTypeFrom(headers['content-type']);
  const onAddress = expected === undefined ? (address: string) => context.actsOn({ address }) : undefined;
  const init = { expected, media_type, onAddress };
  const step = (): Deadline => putStep(deadline);
  const written = await (body_bytes === undefined
    ? storeBody(store, context.stream, init, step, foreground)
    : storeWhole(store, body_bytes, init, step, foreground));
  const receipt = receiptOf(written, receiptDurability(meter, written.address));
  return json(written.existed ? 200 : 201, receipt, {
    Location: `/o/${written.address}`,
    'Ron-Durability': formatDurability(receipt.durability),
  });
}

type PutContext = Pick<RouteContext, 'stream' | 'body_bytes' | 'headers' | 'deadline' | 'actsOn'>;
