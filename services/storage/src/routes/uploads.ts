/**
 * Uploads by tus 1.0: for objects of any size, over connections that break.
 *
 * They are ordinary routes, not an engine of their own: so the capability is checked first, bodies are watched and counted,
 * and refusals are problems, as everywhere. The address that a capability may be limited to is known only when the last
 * byte has come; who holds such a capability states it in advance, as `address` in `Upload-Metadata`, and it is held to.
 */
import type { ObjectStore, Uploads, UploadStatus } from '@ron/cas';
import { empty, json, route, type RouteAnswer, type Route, type RouteContext } from '@ron/ingress';
import { RonError, type Deadline } from '@ron/kernel';
import { formatDurability } from '@ron/proto';
import { Type } from 'typebox';
import { receiptDurability, type DurabilityMeter } from '../objects/durability-meter.ts';
import { inSteps } from '../objects/steps.ts';
import {
  bringsBytes,
  headHeaders,
  metadataFrom,
  numberIn,
  optionsHeaders,
  REFUSAL_HEADERS,
  requireVersion,
  sizeIn,
  statusHeaders,
} from '../uploads/tus.ts';
import { strict } from './schemas.ts';

const Id = Type.Object({ id: Type.String({ maxLength: 64 }) }, strict);
const StatusSchema = Type.Object(
  {
    id: Type.String(),
    offset: Type.Integer(),
    size: Type.Optional(Type.Integer()),
    expires_ms: Type.Integer(),
    address: Type.Optional(Type.String()),
  },
  strict,
);

export interface UploadRoutesInit {
  readonly store: ObjectStore;
  readonly uploads: Uploads;
  readonly meter: DurabilityMeter;
  /** A fresh budget for what the disk takes. */
  readonly uploadStep: () => Deadline;
}

type Context = Pick<RouteContext, 'headers' | 'method' | 'stream' | 'actsOn'>;

export function uploadRoutes(init: UploadRoutesInit): Route[] {
  const common = { scope: 'storage:put', facts_later: ['address'], refusal_headers: REFUSAL_HEADERS } as const;
  const brings = { ...common, lane: 'put', body: 'stream' } as const;
  // A client that is refused here gives the upload up: so this must not wait behind the bodies of others.
  const asks = { ...common, lane: 'get', body: 'none', deadline: 'get' } as const;
  const schema = { params: Id } as const;
  const patch = (context: Context, id: string): Promise<RouteAnswer> => append(init, context, id);
  const remove = (context: Context, id: string, signal: AbortSignal): Promise<RouteAnswer> =>
    terminate(init, context, id, signal);
  return [
    route({
      ...common,
      method: 'OPTIONS',
      path: '/uploads',
      summary: 'What kind of uploads is understood (tus 1.0).',
      lane: 'inline',
      body: 'none',
      handler: (context) => {
        context.actsOn({});
        return empty(204, optionsHeaders(init.store.object_bytes_max));
      },
    }),
    route({
      ...brings,
      method: 'POST',
      path: '/uploads',
      summary: 'Begins an upload (tus 1.0), with its first bytes if the request brings some.',
      handler: (context) => create(init, context),
    }),
    route({
      ...asks,
      method: 'GET',
      path: '/uploads/:id',
      summary: 'How far an upload has come. HEAD tells it in headers (tus 1.0), and the address when it is complete.',
      schema: { ...schema, response: { 200: StatusSchema } },
      handler: (context) => tell(init, context, context.params.id, context.deadline.signal),
    }),
    route({
      ...brings,
      method: 'PATCH',
      path: '/uploads/:id',
      summary: 'Adds bytes to an upload (tus 1.0). The answer to the last ones has the address.',
      schema,
      handler: (context) => patch(context, context.params.id),
    }),
    route({
      ...asks,
      method: 'DELETE',
      path: '/uploads/:id',
      summary: 'Gives an upload up (tus 1.0). An object that it became stays.',
      schema,
      handler: (context) => remove(context, context.params.id, context.deadline.signal),
    }),
    route({
      ...brings,
      method: 'POST',
      path: '/uploads/:id',
      summary: 'PATCH or DELETE for clients that can only POST, by X-HTTP-Method-Override (tus 1.0).',
      schema,
      handler: (context) => {
        const method = context.headers['x-http-method-override'];
        if (method === 'PATCH') return patch(context, context.params.id);
        if (method === 'DELETE') return remove(context, context.params.id, context.deadline.signal);
        throw new RonError('bad_request', 'X-HTTP-Method-Override must say PATCH or DELETE here');
      },
    }),
  ];
}

async function create(init: UploadRoutesInit, context: Context): Promise<RouteAnswer> {
  const { headers } = context;
  requireVersion(headers);
  const size = sizeIn(headers);
  const brings = bringsBytes(headers);
  const metadata = String(headers['upload-metadata'] ?? '');
  const { media_type, address: expected } = metadataFrom(metadata);
  context.actsOn({ address: expected });
  const { uploads, uploadStep } = init;
  using due = uploadStep();
  const created = await due.run(() => uploads.create({ size, metadata, media_type, expected }));
  if (brings) requireRoom(created, 0, headers);
  const status = brings && created.size !== 0 ? await receive(init, context, created.id, 0, undefined) : created;
  return empty(201, { ...tusHeaders(init, status), Location: `/uploads/${status.id}` });
}

async function append(init: UploadRoutesInit, context: Context, id: string): Promise<RouteAnswer> {
  const { headers } = context;
  requireVersion(headers);
  const offset = numberIn(headers, 'upload-offset');
  if (offset === undefined) throw new RonError('bad_request', 'Upload-Offset says where these bytes belong');
  if (!bringsBytes(headers)) throw new RonError('unsupported_media', 'the bytes of an upload have a type of their own');
  {
    using due = init.uploadStep();
    requireRoom(await requireMine(init, context, id, due.signal), offset, headers);
  }
  const status = await receive(init, context, id, offset, numberIn(headers, 'upload-length'));
  return empty(204, tusHeaders(init, status));
}

/** Even if the client leaves: the received bytes are kept, and it can resume from there. */
async function receive(
  { uploads, uploadStep }: UploadRoutesInit,
  { stream }: Context,
  id: string,
  offset: number,
  size: number | undefined,
): Promise<UploadStatus> {
  return await inSteps(stream, uploadStep, (body, signal) => uploads.append({ id, offset, size, body, signal }));
}

async function tell(init: UploadRoutesInit, context: Context, id: string, signal: AbortSignal): Promise<RouteAnswer> {
  requireVersion(context.headers);
  // HEAD is the question of a client that wants to go on: then a request that still adds to the upload is a dead one.
  const known = await requireMine(init, context, id, signal);
  const status = context.method === 'HEAD' ? await init.uploads.settle(id, signal) : known;
  const { metadata: _, ...shown } = status;
  return json(200, shown, headHeaders(status, durabilityOf(init, status)));
}

async function terminate(
  init: UploadRoutesInit,
  context: Context,
  id: string,
  signal: AbortSignal,
): Promise<RouteAnswer> {
  requireVersion(context.headers);
  await requireMine(init, context, id, signal);
  await init.uploads.terminate(id, signal);
  return empty(204, { 'Tus-Resumable': REFUSAL_HEADERS['Tus-Resumable']! });
}

/**
 * Throws unless there is such an upload and the capability allows the address that it claims. One that restricts a body, by
 * a hash or a ceiling, says nothing about an upload, which is many: it is refused as well.
 */
async function requireMine(
  { uploads }: UploadRoutesInit,
  context: Context,
  id: string,
  signal: AbortSignal,
): Promise<UploadStatus> {
  const status = await uploads.find(id, signal);
  if (status === undefined) throw new RonError('not_found', 'there is no such upload, or it has expired');
  context.actsOn({ address: metadataFrom(status.metadata).address });
  return status;
}

/** Throws when the client announces more bytes than the upload has left. A wrong offset is told later, as such. */
function requireRoom(status: UploadStatus, offset: number, headers: Context['headers']): void {
  const { size } = status;
  const length = Number(headers['content-length'] ?? 0);
  if (size === undefined || offset !== status.offset || offset + length <= size) return;
  throw new RonError('payload_too_large', `the upload was declared to have ${size} bytes`);
}

function tusHeaders(init: UploadRoutesInit, status: UploadStatus): Record<string, string> {
  return statusHeaders(status, durabilityOf(init, status));
}

/** Of the object that a complete upload became. */
function durabilityOf({ meter }: UploadRoutesInit, { address }: UploadStatus): string | undefined {
  return address === undefined ? undefined : formatDurability(receiptDurability(meter, address));
}
