/**
 * Sources of a log's resources: a directory written by a log, a directory of C2SP files, or a server.
 *
 * Contract: a source is read-only and untrusted; `verifyLog` verifies its data.
 * Bound: a resource has at most `RESOURCE_BYTES_MAX` bytes; one is read at a time; a request has a deadline.
 * Cancellation: by the signal of each read.
 */
import { join } from 'node:path';
import { Deadline, RonError } from '@ron/kernel';
import { realFileSystem, rethrowDisk, type FileSystem } from '@ron/log';
import { CHECKPOINT, readNote } from '../log/checkpoint-file.ts';
import { HASH_BYTES } from '../tree/hash.ts';
import { BUNDLE_BYTES_MAX, LogFiles } from '../log/log-files.ts';
import { decodeMark, MARK_BYTES_MAX, PRUNED, readMark, type PruneMark } from '../log/prune-mark.ts';
import { NOTE_BYTES_MAX } from '../note/note.ts';
import { decodeBundle, encodeBundle, parseTilePath, TILE_WIDTH, tilePath, type Tile } from './tiles.ts';

const RESOURCE_BYTES_MAX = BUNDLE_BYTES_MAX;
const REQUEST_MS = 30_000;

export interface TileSource extends AsyncDisposable {
  /** A description for messages. */
  readonly name: string;
  /** The signed note; undefined if there is none. */
  checkpoint(signal: AbortSignal): Promise<Uint8Array | undefined>;
  /** The mark of a log whose older entries were removed; undefined if none were. */
  mark(signal: AbortSignal): Promise<PruneMark | undefined>;
  /** A tile or bundle by its path; undefined if there is none. */
  tile(path: string, signal: AbortSignal): Promise<Uint8Array | undefined>;
  /** The log's own files if they are local: they hold more than tiles do. */
  readonly files?: LogFiles;
}

/** A directory written by a log, or a copy of the C2SP resources. */
export async function dirSource(dir: string, fs: FileSystem = realFileSystem): Promise<TileSource> {
  const files = await LogFiles.open(fs, dir).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR')
      throw new RonError('not_found', `${dir} does not contain a log`);
    return rethrowDisk(error);
  });
  return files.has('entries') ? filesSource(dir, files) : copySource(dir, fs);
}

function filesSource(dir: string, files: LogFiles): TileSource {
  return {
    name: dir,
    files,
    checkpoint: () => readNote(files.fs, dir),
    mark: () => readMark(files.fs, dir).catch(rethrowDisk),
    tile: async (path) => {
      const tile = parseTilePath(path);
      if (tile === undefined) return undefined;
      const { level, index, width } = tile;
      if (level !== 'entries') return await files.readHashes(level, index, width).catch(rethrowDisk);
      return await files.readBundle(index, width, await files.bundleEnd(index)).catch(rethrowDisk);
    },
    [Symbol.asyncDispose]: () => files.close(),
  };
}

function copySource(dir: string, fs: FileSystem): TileSource {
  const read = async (path: string, bytes_max: number): Promise<Uint8Array | undefined> => {
    try {
      const file = await fs.open(join(dir, path), 'read');
      try {
        const bytes = Buffer.alloc(Math.min(await file.size(), bytes_max));
        return bytes.subarray(0, await file.read(bytes, bytes.length, 0));
      } finally {
        await file.close();
      }
    } catch (error) {
      if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return undefined;
      return rethrowDisk(error);
    }
  };
  return {
    name: dir,
    checkpoint: () => read(CHECKPOINT, NOTE_BYTES_MAX + 1),
    mark: async () => markIn(await read(PRUNED, MARK_BYTES_MAX)),
    tile: async (path) => (parseTilePath(path) === undefined ? undefined : await read(path, RESOURCE_BYTES_MAX)),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

const markIn = (bytes: Uint8Array | undefined): PruneMark | undefined =>
  bytes === undefined ? undefined : decodeMark(bytes);

/** The part of a `Response` that is read. */
export interface TileAnswer {
  readonly status: number;
  readonly body: (AsyncIterable<Uint8Array> & { cancel(): Promise<void> }) | null;
}

export interface UrlSourceInit {
  /** Sends one GET. It must not follow redirects if it sends a secret. Default: `fetch` without one. */
  send?: (url: string, signal: AbortSignal) => Promise<TileAnswer>;
  /** The server in messages. Default: its URL. */
  name?: string;
  /** Per request. Default 30 s. */
  deadline_ms?: number;
}

/** A server: `url` is the prefix before `/checkpoint` and `/tile/...`. */
export function urlSource(url: string, init: UrlSourceInit = {}): TileSource {
  const prefix = url.replace(/\/+$/, '');
  const { name = prefix, send = (from, signal): Promise<TileAnswer> => fetch(from, { signal, redirect: 'error' }) } =
    init;
  const read = async (path: string, bytes_max: number, signal: AbortSignal): Promise<Uint8Array | undefined> => {
    using deadline = Deadline.after('tlog_read', init.deadline_ms ?? REQUEST_MS, { signal });
    return await deadline.run(async (until) => {
      const response = await send(`${prefix}/${path}`, until).catch(unreachable);
      if (response.status === 404) {
        await response.body?.cancel();
        return undefined;
      }
      if (response.status !== 200) {
        await response.body?.cancel();
        const code = { 401: 'unauthorized', 403: 'forbidden' } as const;
        const { [response.status as 401]: known = 'unreachable' } = code;
        throw new RonError(known, `${path} failed with status ${response.status}`);
      }
      return await bodyOf(response, bytes_max).catch(unreachable);
    });
  };
  return {
    name,
    checkpoint: (signal) => read(CHECKPOINT, NOTE_BYTES_MAX, signal),
    mark: async (signal) => markIn(await read(PRUNED, MARK_BYTES_MAX, signal)),
    tile: (path, signal) => read(path, RESOURCE_BYTES_MAX, signal),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

/** Reads a body of at most `bytes_max`. */
export async function bodyOf(response: Pick<TileAnswer, 'body'>, bytes_max: number): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of response.body ?? []) {
    bytes += piece.length;
    if (bytes > bytes_max) throw new RonError('payload_too_large', `the response has more than ${bytes_max} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

export function unreachable(cause: unknown): never {
  if (cause instanceof RonError) throw cause;
  const { message, cause: inner } = cause as Error;
  const why = inner instanceof Error ? inner.message : message;
  throw new RonError('unreachable', `the server cannot be reached: ${why}`, { cause });
}

/** Reads a tile or bundle of a tree. If a partial tile was deleted after the full one appeared, it is cut from that. */
export async function readWidth(source: TileSource, tile: Tile, signal: AbortSignal): Promise<Uint8Array | undefined> {
  const found = await source.tile(tilePath(tile), signal);
  if (found !== undefined || tile.width === TILE_WIDTH) return found;
  const full = await source.tile(tilePath({ ...tile, width: TILE_WIDTH }), signal);
  if (full === undefined || tile.level !== 'entries') return full?.subarray(0, tile.width * HASH_BYTES);
  const entries = decodeBundle(full);
  return entries === undefined ? full : encodeBundle(entries.slice(0, tile.width));
}
