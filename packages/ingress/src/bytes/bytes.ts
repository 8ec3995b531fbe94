/**
 * Serves bytes of known size and tag: ranges, conditions, lengths and slow readers in one place.
 *
 * Contract: the first batch is read and verified by its source before the headers are sent, so a source that fails at
 * once gives a clean problem. If it fails later, or does not yield exactly the announced bytes, the connection is
 * destroyed, so that the client detects the truncation. The source's iterator is always closed. Never rejects.
 * Bound: one batch of chunks is held; the next is requested once the kernel has accepted the last.
 * Cancellation: `signal`; a client that leaves, or whose connection the sweeper cuts; `stall_ms` without a batch from the
 * source, checked four times in that time.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { assert, RonError } from '@ron/kernel';
import { chooseVariant } from './accept-encoding.ts';
import { ageNow, byteAnswer, byteHead, cacheStatusNow, varyByEncoding } from './byte-answer.ts';
import type { ByteDescription } from './byte-answer.ts';
import { endWith, refuse, Transfer } from './transfer.ts';

/** Consecutive chunks. */
export type Batch = readonly Uint8Array[];

export interface ByteSource extends ByteDescription {
  /** The whole body, if it is verified in RAM. */
  readonly ram?: Batch;
  /** The same content in other codings, each with a tag of its own. `Accept-Encoding` selects one of all. */
  readonly variants?: readonly ByteSource[];
  /**
   * Bytes `start` to `end` (exclusive) in batches of verified chunks, none of them empty; a batch is sent in one
   * write, so 256 KiB to 1 MiB are best; a client that does not read holds one. It must not change until the next one is requested. The signal aborts when the
   * transfer ends.
   */
  read(start: number, end: number, signal: AbortSignal): AsyncIterable<Batch>;
}

export interface ByteOutcome {
  /** The status that was sent; 0 if none was. */
  readonly status: number;
  /** Body bytes that the kernel accepted, at least. */
  readonly body_bytes: number;
  /**
   * `complete`: the whole answer was sent. `refused`: a problem instead. Otherwise the connection was closed: `client_gone` by
   * the client or by the sweeper, `source` because of the source, `aborted` because of the signal.
   */
  readonly result: 'complete' | 'refused' | CutReason;
  readonly error?: unknown;
}

export type CutReason = 'client_gone' | 'source' | 'aborted';

export interface ServeBytesInit {
  readonly corr_id: string;
  /** Ends the answer. It should abort when the connection is lost or the service stops. */
  readonly signal: AbortSignal;
  /** The longest wait for a batch of the source. */
  readonly stall_ms: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Further names and values, appended to the head. */
  readonly lines?: readonly string[];
  /** Answers a refusal (412, 416, or a source that failed at once) instead of the default problem answer. */
  readonly refuse?: (error: unknown) => void;
  /** Called when the head is sent: from then on the limits on progress apply instead of a deadline. */
  readonly onHead?: () => void;
  /** Called once, at the end. */
  readonly onOutcome?: (outcome: ByteOutcome) => void;
}

/** Bodies in RAM are written to the socket in pieces of this size, because an encrypted connection copies each piece. */
const RAM_PIECE_BYTES = 1024 * 1024;

/** Answers a GET or HEAD for `source`, in a coding that the client accepts. */
export async function serveBytes(
  req: IncomingMessage,
  res: ServerResponse,
  source: ByteSource,
  init: ServeBytesInit,
): Promise<void> {
  const outcome = await answer(req, res, source, init);
  init.onOutcome?.(outcome);
}

function answer(
  req: IncomingMessage,
  res: ServerResponse,
  given: ByteSource,
  init: ServeBytesInit,
): ByteOutcome | Promise<ByteOutcome> {
  const { method } = req;
  assert(method === 'GET' || method === 'HEAD', 'bytes are served to GET and HEAD');
  const source = inAcceptedCoding(given, req.headers['accept-encoding']);
  if (source === undefined) return refuse(req, res, init, new RonError('not_acceptable', NO_CODING));
  const plan = byteAnswer(method, req.headers, source);
  if ('error' in plan) return refuse(req, res, init, plan.error);
  const head = byteHead(source, plan, init.headers);
  if (given.variants !== undefined) varyByEncoding(head);
  if (init.lines !== undefined) head.push(...init.lines);
  if (source.cache_status !== undefined) head.push('Cache-Status', cacheStatusNow(source.cache_status));
  if (source.born_ms !== undefined) head.push('Age', ageNow(source.born_ms));
  head.push('X-Corr-ID', init.corr_id);
  if (plan.status === 304 || method === 'HEAD' || plan.start === plan.end) {
    res.writeHead(plan.status, head);
    res.end();
    return { status: plan.status, body_bytes: 0, result: 'complete' };
  }
  const { ram } = source;
  const length = plan.end - plan.start;
  if (ram !== undefined && length <= RAM_PIECE_BYTES) {
    res.writeHead(plan.status, head);
    endWith(res, length === source.size ? ram : piecesOf(ram, plan.start, plan.end));
    // Usually the kernel accepts all of it at once.
    if (res.socket !== null && res.socket.writableLength === 0) {
      return { status: plan.status, body_bytes: length, result: 'complete' };
    }
    return new Transfer(req, res, init, length).finish();
  }
  const transfer = new Transfer(req, res, init, length);
  const read = (signal: AbortSignal): AsyncIterable<Batch> =>
    ram === undefined ? source.read(plan.start, plan.end, signal) : ramBatches(ram, plan.start, plan.end);
  return transfer.run(read, () => {
    init.onHead?.();
    res.writeHead(plan.status, head);
  });
}

const NO_CODING = 'no content coding of this object is acceptable; accept identity, gzip or br';

/** Undefined: none is acceptable. An object without codings is not negotiated. */
function inAcceptedCoding(source: ByteSource, header: string | undefined): ByteSource | undefined {
  if (source.variants === undefined && source.encoding === undefined) return source;
  return chooseVariant([source, ...(source.variants ?? [])], header);
}

async function* ramBatches(ram: Batch, start: number, end: number): AsyncGenerator<Batch, void, void> {
  for (let at = start; at < end; at += RAM_PIECE_BYTES) yield piecesOf(ram, at, Math.min(at + RAM_PIECE_BYTES, end));
}

/** The bytes from `start` up to `end` of consecutive chunks. */
function piecesOf(chunks: Batch, start: number, end: number): Batch {
  const pieces: Uint8Array[] = [];
  let at = 0;
  for (const chunk of chunks) {
    const piece = chunk.subarray(Math.max(0, start - at), Math.max(0, end - at));
    if (piece.length > 0) pieces.push(piece);
    at += chunk.length;
  }
  return pieces;
}
