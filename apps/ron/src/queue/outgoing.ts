/**
 * The messages of `ron queue send`, read from text, files or standard input.
 *
 * Contract: yields payloads in order. `FLUSH` between them marks a point where the next one may not be available yet, so that
 * lines of a slow pipe are sent as they come. A payload above the limit of mailbox is an error that names its source,
 * and so is an empty standard input.
 * Bound: one message and one chunk in memory. Cancellation: by the signal.
 */
import { addAbortSignal } from 'node:stream';
import { MAILBOX_LIMITS } from '@ron/proto';
import { CliError } from '../exits.ts';
import { humanSize } from '../format.ts';
import { openInput } from '../input-file.ts';

export const FLUSH = Symbol('flush');

export interface OutgoingPayload {
  readonly payload: Uint8Array;
  /** Where it comes from, for messages: `orders.json`, `standard input, line 3`. */
  readonly source: string;
}

const CHUNK_BYTES = 256 * 1024;
const LINE_BREAK = 0x0a;

export interface OutgoingInit {
  /** `-` is standard input. */
  readonly files: readonly string[];
  readonly text: string | undefined;
  readonly lines: boolean;
  readonly signal: AbortSignal;
}

export async function* payloads({
  files,
  text,
  lines,
  signal,
}: OutgoingInit): AsyncGenerator<OutgoingPayload | typeof FLUSH> {
  if (text !== undefined) yield checked({ payload: new TextEncoder().encode(text), source: '--text' });
  for (const file of files) {
    const source = file === '-' ? 'standard input' : file;
    await using opened = await openSource(file, signal);
    if (lines) {
      yield* linesOf(opened.chunks, source);
      continue;
    }
    const payload = await whole(opened.chunks, source);
    // More likely a command that failed before the pipe than a message.
    if (file === '-' && payload.length === 0)
      throw new CliError('usage', "standard input is empty: use --text '' to send an empty message");
    yield { payload, source };
  }
}

/** The bytes of all files; undefined if one is not a regular file. */
export async function totalBytes(files: readonly string[]): Promise<number | undefined> {
  let total = 0;
  for (const file of files) {
    if (file === '-') return undefined;
    await using handle = await openInput(file);
    const stats = await handle.stat();
    if (stats.isDirectory()) throw new CliError('usage', `${file} is a directory`);
    if (!stats.isFile()) return undefined;
    total += stats.size;
  }
  return total;
}

interface Source extends AsyncDisposable {
  readonly chunks: AsyncIterable<Uint8Array>;
}

async function openSource(file: string, signal: AbortSignal): Promise<Source> {
  if (file === '-') return { chunks: addAbortSignal(signal, process.stdin), [Symbol.asyncDispose]: async () => {} };
  const handle = await openInput(file);
  const chunks = handle.createReadStream({ autoClose: false, highWaterMark: CHUNK_BYTES, signal });
  return { chunks, [Symbol.asyncDispose]: () => handle.close() };
}

async function whole(chunks: AsyncIterable<Uint8Array>, source: string): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of chunks) {
    size += chunk.length;
    requireSize(size, source);
    parts.push(chunk);
  }
  return Buffer.concat(parts, size);
}

export async function* linesOf(
  chunks: AsyncIterable<Uint8Array>,
  source: string,
): AsyncGenerator<OutgoingPayload | typeof FLUSH> {
  let rest: Uint8Array = new Uint8Array(0);
  let line = 0;
  const next = (payload: Uint8Array): OutgoingPayload => checked({ payload, source: `${source}, line ${++line}` });
  for await (const chunk of chunks) {
    let from = 0;
    for (let end = chunk.indexOf(LINE_BREAK); end !== -1; end = chunk.indexOf(LINE_BREAK, from)) {
      yield next(joined(rest, chunk.subarray(from, end)));
      rest = new Uint8Array(0);
      from = end + 1;
    }
    rest = joined(rest, chunk.subarray(from));
    requireSize(rest.length, `${source}, line ${line + 1}`);
    yield FLUSH;
  }
  if (rest.length > 0) yield next(rest);
}

const joined = (head: Uint8Array, tail: Uint8Array): Uint8Array =>
  head.length === 0 ? tail : Buffer.concat([head, tail]);

function checked(outgoing: OutgoingPayload): OutgoingPayload {
  requireSize(outgoing.payload.length, outgoing.source);
  return outgoing;
}

function requireSize(bytes: number, source: string): void {
  const { message_bytes } = MAILBOX_LIMITS;
  if (bytes <= message_bytes) return;
  const advice = 'store it with `ron put`, and send its address';
  throw new CliError('failed', `${source} has more than ${humanSize(message_bytes)}: ${advice}`, 'payload_too_large');
}
