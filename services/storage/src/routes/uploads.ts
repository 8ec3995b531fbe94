/**
 * Handlers of resumable uploads (tus 1.0).
 *
 * Contract: a capability that is limited to addresses must state one in `Upload-Metadata` when the upload is created: the
 * address of the bytes is known only after the last byte, and a mismatch is refused then.
 */
import type { ObjectStore, Uploads, UploadStatus } from '@ron/cas';
import { empty, json, type RouteAnswer, type RouteContext } from '@ron/ingress';
import { RonError, type Deadline } from '@ron/kernel';
import { formatDurability } from '@ron/proto';
import { receiptDurability, type DurabilityMeter } from '../objects/durability-meter.ts';
import { withStepDeadlines } from '../objects/step-deadlines.ts';
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

export interface UploadInit {
  readonly store: ObjectStore;
  readonly uploads: Uploads;
  readonly meter: DurabilityMeter;
  /** A new deadline for one step of writing. */
  readonly uploadStep: () => Deadline;
}

type Context = Pick<RouteContext, 'headers' | 'method' | 'stream' | 'actsOn'>;
type UploadContext = Context & Pick<RouteContext, 'deadline'> & { readonly params: { readonly id: string } };

export function uploadHandlers(init: UploadInit) {
  return {
    options: (context: Context): RouteAnswer => {
      context.actsOn({});
      return empty(204, optionsHeaders(init.store.object_bytes_max));
    },
    create: (context: Context) => create(init, context),
    status: (context: UploadContext) => describe(init, context),
    append: (context: UploadContext) => append(init, context),
    terminate: (context: UploadContext) => terminate(init, context),
    override: (context: UploadContext) => {
      const method = context.headers['x-http-method-override'];
      if (method === 'PATCH') return append(init, context);
      if (method === 'DELETE') return terminate(init, context);
      throw new RonError('bad_request', 'X-HTTP-Method-Override must be PATCH or DELETE');
    },
  };
}

async function create(init: UploadInit, context: Context): Promise<RouteAnswer> {
  const { headers } = context;
  requireVersion(headers);
  const size = sizeIn(headers);
  const hasBytes = bringsBytes(headers);
  const metadata = String(headers['upload-metadata'] ?? '');
  const { media_type, address: expected } = metadataFrom(metadata);
  context.actsOn({ address: expected });
  const { uploads, uploadStep } = init;
  using due = uploadStep();
  const created = await due.run(() => uploads.create({ size, metadata, media_type, expected }));
  if (hasBytes) requireRoom(created, 0, headers);
  const status = hasBytes && created.size !== 0 ? await receive(init, context, created.id, 0, undefined) : created;
  return empty(201, { ...tusHeaders(init, status), Location: `/uploads/${status.id}` });
}

async function append(init: UploadInit, context: UploadContext): Promise<RouteAnswer> {
  const { headers, params } = context;
  requireVersion(headers);
  const offset = numberIn(headers, 'upload-offset');
  if (offset === undefined) throw new RonError('bad_request', 'Upload-Offset is required');
  if (!bringsBytes(headers)) throw new RonError('unsupported_media', 'the bytes of an upload have a type of their own');
  {
    using due = init.uploadStep();
    requireRoom(await requireUpload(init, context, params.id, due.signal), offset, headers);
  }
  const status = await receive(init, context, params.id, offset, numberIn(headers, 'upload-length'));
  return empty(204, tusHeaders(init, status));
}

/** Keeps the received bytes even if the client leaves, so that it can resume from there. */
async function receive(
  { uploads, uploadStep }: UploadInit,
  { stream }: Context,
  id: string,
  offset: number,
  size: number | undefined,
): Promise<UploadStatus> {
  return await withStepDeadlines(stream, uploadStep, (body, signal) =>
    uploads.append({ id, offset, size, body, signal }),
  );
}

async function describe(init: UploadInit, context: UploadContext): Promise<RouteAnswer> {
  requireVersion(context.headers);
  const { id } = context.params;
  const { signal } = context.deadline;
  // A client sends HEAD before it resumes: a request that still appends to this upload has been abandoned by then.
  const known = await requireUpload(init, context, id, signal);
  const latest = context.method === 'HEAD' ? await init.uploads.settle(id, signal) : known;
  const { metadata: _, ...shown } = latest;
  return json(200, shown, headHeaders(latest, durabilityOf(init, latest)));
}

async function terminate(init: UploadInit, context: UploadContext): Promise<RouteAnswer> {
  requireVersion(context.headers);
  const { id } = context.params;
  const { signal } = context.deadline;
  await requireUpload(init, context, id, signal);
  await init.uploads.terminate(id, signal);
  return empty(204, { 'Tus-Resumable': REFUSAL_HEADERS['Tus-Resumable']! });
}

/**
 * Throws unless the upload exists and the capability allows its stated address. A capability that restricts the body, by a
 * hash or a size, is refused too: an upload is many bodies.
 */
async function requireUpload(
  { uploads }: UploadInit,
  context: Context,
  id: string,
  signal: AbortSignal,
): Promise<UploadStatus> {
  const status = await uploads.find(id, signal);
  if (status === undefined) throw new RonError('not_found', 'upload not found: it is unknown or has expired');
  context.actsOn({ address: metadataFrom(status.metadata).address });
  return status;
}

/** Throws when the client announces more bytes than the upload has left. A wrong offset is refused later, as `conflict`. */
function requireRoom(status: UploadStatus, offset: number, headers: Context['headers']): void {
  const { size } = status;
  const length = Number(headers['content-length'] ?? 0);
  if (size === undefined || offset !== status.offset || offset + length <= size) return;
  throw new RonError('payload_too_large', `the upload was declared to have ${size} bytes`);
}

function tusHeaders(init: UploadInit, status: UploadStatus): Record<string, string> {
  return statusHeaders(status, durabilityOf(init, status));
}

/** The durability of the object that a complete upload became. */
function durabilityOf({ meter }: UploadInit, { address }: UploadStatus): string | undefined {
  return address === undefined ? undefined : formatDurability(receiptDurability(meter, address));
}
