/** Routes for operators: lists, uploads and removes packs. */
import { empty, json, route, Type, type JsonSchema, type Route, type RouteAnswer } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import {
  ADDRESS_PATTERN,
  PACK_NAME_PATTERN,
  parseAddress,
  type Address,
  type BadPackDto,
  type PackDto,
  type PackListDto,
} from '@ron/proto';
import type { PackInfo } from '../packs/pack.ts';
import type { Packs } from '../packs/packs.ts';
import { ADMIN } from './admin.ts';
import type { Fields } from './fields.ts';

export interface PackRoutesInit {
  readonly packs: Packs;
}

const strict = { additionalProperties: false } as const;
const Name = Type.Object({ name: Type.String({ pattern: PACK_NAME_PATTERN.source }) }, strict);
const AddressText = Type.String({ pattern: ADDRESS_PATTERN });
const Query = Type.Object(
  {
    address: Type.Optional({ ...AddressText, description: 'Mounts this object of storage instead of the body.' }),
    expect: Type.Optional({ ...AddressText, description: 'Refuses a pack with another address.' }),
  },
  strict,
);

const Numbers = (count: number): JsonSchema => Type.Array(Type.Number(), { minItems: count, maxItems: count });
const PackSchema = Type.Object(
  {
    name: Type.String(),
    address: AddressText,
    format: Type.Unsafe({ enum: ['pmtiles', 'mbtiles'] }),
    size: Type.Integer(),
    tile_type: Type.String(),
    tiles: Type.Integer(),
    zooms: Numbers(2),
    bounds: Numbers(4),
    problem: Type.Optional(Type.String()),
  } satisfies Fields<PackDto>,
  strict,
);
const BadPackSchema = Type.Object(
  {
    name: Type.String(),
    file: Type.String(),
    reason: Type.String(),
    is_served: Type.Boolean(),
  } satisfies Fields<BadPackDto>,
  strict,
);
const PackListSchema = Type.Object(
  { packs: Type.Array(PackSchema), bad: Type.Array(BadPackSchema) } satisfies Fields<PackListDto>,
  strict,
);

export function packRoutes({ packs }: PackRoutesInit): Route[] {
  return [
    route({
      ...ADMIN,
      method: 'GET',
      path: '/edge/packs',
      summary: 'Lists the mounted packs, and the files that cannot be mounted, with the reason.',
      body: 'none',
      schema: { response: { 200: PackListSchema } },
      handler: () => json(200, listOf(packs)),
    }),
    route({
      ...ADMIN,
      method: 'PUT',
      path: '/edge/packs/:name',
      summary:
        'Verifies and mounts a pack: the body, or an object of storage. A bad one is refused, and nothing is kept.',
      // No total deadline: a body may take as long as its client keeps sending. Packs have a deadline after their last byte.
      body: 'stream',
      schema: { params: Name, query: Query, response: { 201: PackSchema } },
      handler: async ({ params: { name }, query, stream, deadline }): Promise<RouteAnswer> => {
        const address = addressFrom(query.address);
        if (address !== undefined) await requireEmpty(stream);
        const expect = addressFrom(query.expect);
        const { info } = await packs.put({ name, from: address ?? stream, expect, signal: deadline.signal });
        return json(201, packDto(name, info));
      },
    }),
    route({
      ...ADMIN,
      method: 'DELETE',
      path: '/edge/packs/:name',
      summary: 'Removes a pack and its file. Requests that read it finish.',
      body: 'none',
      schema: { params: Name },
      handler: async ({ params: { name }, deadline }): Promise<RouteAnswer> => {
        const isRemoved = await packs.remove(name, deadline.signal);
        if (!isRemoved) throw new RonError('not_found', `there is no pack ${name}`);
        return empty(204);
      },
    }),
  ];
}

function listOf(packs: Packs): PackListDto {
  return {
    packs: packs.list().map(({ name, pack: { info, problem } }) => packDto(name, info, problem)),
    bad: packs.bad().map(({ name, file, reason, isServed }) => ({ name, file, reason, is_served: isServed })),
  };
}

function packDto(name: string, info: PackInfo, problem?: string): PackDto {
  const { address, format, size, tile_type, tiles, zooms, bounds } = info;
  const pack = { name, address, format, size, tile_type, tiles, zooms, bounds };
  return problem === undefined ? pack : { ...pack, problem };
}

function addressFrom(text: string | undefined): Address | undefined {
  return text === undefined ? undefined : parseAddress(text);
}

async function requireEmpty(stream: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const chunk of stream) {
    if (chunk.length > 0) throw new RonError('validation', 'send a body or the parameter address, not both');
  }
}
