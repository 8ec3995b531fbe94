/**
 * The HTTP surface of storage: one row per route, with its scope, lane, body mode, schema and handler.
 *
 * To add a route, add a row here, its schemas to `routes/schemas.ts` and its handler to a file in `routes/`.
 */
import type { ObjectStore } from '@ron/cas';
import { route, type Route } from '@ron/ingress';
import type { TaskKind, VolumeVerb } from '@ron/proto';
import { TaskIdSchema, TaskSchema, TasksSchema, type TaskWork } from '@ron/service';
import { adminHandlers, type AdminInit } from './routes/admin.ts';
import { getManifest, getObject, type GetInit } from './routes/get-object.ts';
import { pin, unpin } from './routes/pins.ts';
import { putObject, type PutInit } from './routes/put-object.ts';
import * as schemas from './routes/schemas.ts';
import { uploadHandlers, type UploadInit } from './routes/uploads.ts';
import { volumeHandlers, type VolumeAdminInit } from './routes/volumes.ts';
import { REFUSAL_HEADERS } from './uploads/tus.ts';

export interface StorageRoutesInit extends GetInit, PutInit, UploadInit, AdminInit, VolumeAdminInit {
  readonly store: ObjectStore;
  readonly maintenance: AdminInit['maintenance'] & VolumeAdminInit['maintenance'];
  /** Whether reads need a capability. */
  readonly guardReads: boolean;
  readonly compaction: TaskWork;
}

/** Bodies up to this size, and to one chunk, are complete before a worker takes them. */
const GATHER_BYTES_MAX = 64 * 1024;

/** A capability may be limited to addresses. */
const byAddress: NonNullable<Route['facts']> = ({ params }) => ({ address: params['addr'] });
/** Inline: an operator must not wait behind the work under investigation. */
const ADMIN = { scope: 'storage:admin', lane: 'inline', body: 'none' } as const;

export function routes(init: StorageRoutesInit): Route[] {
  return [
    ...readRoutes(init),
    ...writeRoutes(init),
    ...uploadRoutes(init),
    ...adminRoutes(init),
    ...volumeRoutes(init),
  ];
}

function readRoutes(init: StorageRoutesInit): Route[] {
  const scope = init.guardReads ? 'storage:get' : null;
  const read = { scope, lane: 'get', body: 'none', deadline: 'get', facts: byAddress } as const;
  return [
    route({
      ...read,
      method: 'GET',
      path: '/o/:addr',
      summary: 'Returns an object, a range of it, or with proof=bao a slice with a proof against the address.',
      schema: { params: schemas.Addr, query: schemas.GetQuery },
      handler: (context) => getObject(init, context),
    }),
    route({
      ...read,
      method: 'GET',
      path: '/o/:addr/manifest',
      summary: 'Returns the ids of the chunks of an object and their subtree values.',
      schema: { params: schemas.Addr, response: { 200: schemas.Manifest } },
      handler: (context) => getManifest(init, context),
    }),
  ];
}

function writeRoutes(init: StorageRoutesInit): Route[] {
  const { store } = init;
  const write = {
    scope: 'storage:put',
    lane: 'put',
    // No total deadline: a body may take as long as its client keeps sending.
    body: 'stream',
    body_bytes_max: store.object_bytes_max,
    gather_bytes_max: Math.min(store.chunk_bytes, GATHER_BYTES_MAX),
  } as const;
  const pinned = { scope: 'storage:pin', lane: 'put', body: 'none', deadline: 'put', facts: byAddress } as const;
  const response = { 200: schemas.Receipt, 201: schemas.Receipt };
  return [
    route({
      ...write,
      method: 'PUT',
      path: '/o/:addr',
      summary: 'Stores the bytes that have this address. Refuses other bytes and keeps nothing of them.',
      facts: byAddress,
      schema: { params: schemas.Addr, response },
      handler: (context) => putObject(init, context, context.params.addr),
    }),
    route({
      ...write,
      method: 'POST',
      path: '/o',
      summary: 'Stores bytes and returns their address.',
      facts_later: ['address'],
      schema: { response },
      handler: (context) => putObject(init, context, undefined),
    }),
    route({
      ...pinned,
      method: 'PUT',
      path: '/o/:addr/pin',
      summary: 'Pins an object: compaction keeps it after its lease has expired.',
      schema: { params: schemas.Addr },
      handler: (context) => pin(store, context),
    }),
    route({
      ...pinned,
      method: 'DELETE',
      path: '/o/:addr/pin',
      summary: 'Removes the pin of an object.',
      schema: { params: schemas.Addr },
      handler: (context) => unpin(store, context),
    }),
  ];
}

/** tus 1.0. Ordinary routes, so capabilities, limits and refusals work as on every other route. */
function uploadRoutes(init: StorageRoutesInit): Route[] {
  const { options, create, status, append, terminate, override } = uploadHandlers(init);
  const common = { scope: 'storage:put', facts_later: ['address'], refusal_headers: REFUSAL_HEADERS } as const;
  const sends = { ...common, lane: 'put', body: 'stream' } as const;
  // A client gives its upload up when this is refused, so it must not queue behind the bodies of other clients.
  const queries = { ...common, lane: 'get', body: 'none', deadline: 'get' } as const;
  const schema = { params: schemas.UploadId } as const;
  return [
    route({
      ...common,
      method: 'OPTIONS',
      path: '/uploads',
      summary: 'Returns the supported tus version and extensions (tus 1.0).',
      lane: 'inline',
      body: 'none',
      handler: options,
    }),
    route({
      ...sends,
      method: 'POST',
      path: '/uploads',
      summary: 'Creates an upload (tus 1.0), with its first bytes if the request has a body.',
      handler: create,
    }),
    route({
      ...queries,
      method: 'GET',
      path: '/uploads/:id',
      summary: 'Returns the offset of an upload. HEAD returns it in headers (tus 1.0), with the address once complete.',
      schema: { ...schema, response: { 200: schemas.UploadStatus } },
      handler: status,
    }),
    route({
      ...sends,
      method: 'PATCH',
      path: '/uploads/:id',
      summary: 'Appends bytes to an upload (tus 1.0). The answer to the last ones has the address.',
      schema,
      handler: append,
    }),
    route({
      ...queries,
      method: 'DELETE',
      path: '/uploads/:id',
      summary: 'Terminates an upload (tus 1.0). An object that it became stays.',
      schema,
      handler: terminate,
    }),
    route({
      ...sends,
      method: 'POST',
      path: '/uploads/:id',
      summary: 'PATCH or DELETE by X-HTTP-Method-Override, for clients that can only POST (tus 1.0).',
      schema,
      handler: override,
    }),
  ];
}

function adminRoutes(init: StorageRoutesInit): Route[] {
  const { repairStatus, tasks, task, starts } = adminHandlers(init);
  const start = (kind: TaskKind, work: TaskWork, summary: string): Route =>
    route({
      ...ADMIN,
      method: 'POST',
      path: `/admin/${kind}`,
      summary: `${summary} Returns the running task if there is one.`,
      schema: { response: { 202: TaskSchema } },
      handler: starts(kind, work),
    });
  return [
    start('compact', init.compaction, 'Starts a compaction, which reclaims space.'),
    start('repair', init.maintenance.repair, 'Starts a repair of all missing copies and shards.'),
    start('scrub', init.maintenance.scrub, 'Starts a scrub: reads every byte of every volume and repairs damage.'),
    route({
      ...ADMIN,
      method: 'GET',
      path: '/admin/repair',
      summary: 'Returns the missing copies and shards, and the progress of repair.',
      schema: { response: { 200: schemas.Repair } },
      handler: repairStatus,
    }),
    route({
      ...ADMIN,
      method: 'GET',
      path: '/admin/tasks',
      summary: 'Lists recent tasks, the newest first.',
      schema: { response: { 200: TasksSchema } },
      handler: tasks,
    }),
    route({
      ...ADMIN,
      method: 'GET',
      path: '/admin/tasks/:id',
      summary: 'Returns the progress or the result of a task.',
      schema: { params: TaskIdSchema, response: { 200: TaskSchema } },
      handler: task,
    }),
  ];
}

function volumeRoutes(init: StorageRoutesInit): Route[] {
  const { volumes, drain, undrain, lose, restore, remove } = volumeHandlers(init);
  const response = { 200: schemas.Volumes };
  const command = (verb: VolumeVerb, summary: string, handler: typeof drain): Route =>
    route({
      ...ADMIN,
      method: 'POST',
      path: `/admin/volumes/${verb}`,
      summary,
      schema: { query: schemas.VolumeName, response },
      handler,
    });
  return [
    route({
      ...ADMIN,
      method: 'GET',
      path: '/admin/volumes',
      summary: 'Lists the volumes, their state and usage.',
      schema: { response },
      handler: volumes,
    }),
    command('drain', 'Moves the data of a volume to others and writes nothing new to it.', drain),
    command('undrain', 'Cancels a drain.', undrain),
    command('lose', 'Gives a volume up: its data is repaired from other volumes.', lose),
    command('restore', 'Restores a lost volume, its empty replacement, or one that was used apart.', restore),
    route({
      ...ADMIN,
      method: 'POST',
      path: '/admin/volumes/remove',
      summary: 'Removes a drained or lost volume; with force=true even one that may hold the last copy of a record.',
      schema: { query: schemas.VolumeRemoval, response },
      handler: remove,
    }),
  ];
}
