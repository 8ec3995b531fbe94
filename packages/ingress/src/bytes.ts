/**
 * Serves bytes of known size and tag: ranges, conditions, lengths and slow readers in one place.
 *
 * Promise: the first batch is in hand, verified by its source, before headers go out, so a source that fails at once gives
 * a clean problem; one that fails later, or that does not yield exactly the bytes it promised, has its connection
 * destroyed: a cut answer never looks whole. The source's iterator is always closed. Never rejects.
 * Bound: one batch of chunks is held; the next is asked for when the kernel has taken the last.
 * Cancellation: `signal`; a client that leaves; `stall_ms` without progress on either side; an average below
 * `rate_bytes_per_s_min` on the client's side after a grace of `stall_ms`. Looked at four times per `stall_ms`.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { RonError, assert, sched } from '@ron/kernel';
import type { Parked, Timer } from '@ron/kernel';
import { byteAnswer, byteHead } from './byte-answer.ts';
import type { ByteDescription } from './byte-answer.ts';
import { sentBytes } from './connection.ts';
import { problemFor } from './problem.ts';
import { TransferWatch } from './transfer-watch.ts';

/** Chunks that follow one another. */
export type Batch = readonly Uint8Array[];

export interface ByteSource extends ByteDescription {
  /** The whole body, when it lies verified in RAM. */
  readonly ram?: Batch;
  /**
   * Bytes `start` to `end` (exclusive) in batches of verified chunks, none of them empty; a batch leaves in one write, so
   * about 1 MiB is best. It must stay as it is until the next one is asked for. The signal aborts when nobody wants them
   * any more.
   */
  read(start: number, end: number, signal: AbortSignal): AsyncIterable<Batch>;
}

export interface ByteOutcome {
  /** The status that was sent, 0 when none was. */
  readonly status: number;
  /** Body bytes that the kernel took from us, at least. */
  readonly body_bytes: number;
  /**
   * `complete`: the whole answer left. `refused`: a problem instead. Else the connection was cut: `client_gone`, `stalled`
   * and `too_slow` are the client's doing, `source` ours, `aborted` the signal's.
   */
  readonly result: 'complete' | 'refused' | CutReason;
  readonly error?: unknown;
}

export type CutReason = 'client_gone' | 'stalled' | 'too_slow' | 'source' | 'aborted';

export interface ServeBytesInit {
  readonly corr_id: string;
  /** Ends the answer. It should abort when the connection is lost or the service stops. */
  readonly signal: AbortSignal;
  /** No byte moved for this long: cut. */
  readonly stall_ms: number;
  /** Cut below this average; 0 for none. */
  readonly rate_bytes_per_s_min: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Answers a refusal (412, 416, or a source that failed at once) in place of the plain problem answer. */
  readonly refuse?: (error: unknown) => void;
  /** Called when the head goes out: until then a deadline may have governed, from then on it is progress. */
  readonly onHead?: () => void;
  /** Called once, when it is over. */
  readonly onOutcome?: (outcome: ByteOutcome) => void;
}

/** Bodies in RAM are handed to the socket in pieces of this size: an encrypted connection copies what it is given. */
const RAM_PIECE_BYTES = 1024 * 1024;
/** After this many bytes everybody else gets a turn, however fast source and client are. */
const TURN_BYTES = 1024 * 1024;

/** Answers a GET or HEAD for `source`. */
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
  source: ByteSource,
  init: ServeBytesInit,
): ByteOutcome | Promise<ByteOutcome> {
  const { method } = req;
  assert(method === 'GET' || method === 'HEAD', 'bytes are served to GET and HEAD');
  const plan = byteAnswer(method, req.headers, source);
  if ('error' in plan) return refuse(req, res, init, plan.error);
  const head = byteHead(source, plan, init.headers);
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
    // Mostly the kernel takes it all at once, and nothing is left to wait for.
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

async function* ramBatches(ram: Batch, start: number, end: number): AsyncGenerator<Batch, void, void> {
  for (let at = start; at < end; at += RAM_PIECE_BYTES) yield piecesOf(ram, at, Math.min(at + RAM_PIECE_BYTES, end));
}

/** The bytes from `start` up to `end` of chunks that follow one another. */
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

/** The last of an answer, in one write. */
export function endWith(res: ServerResponse, batch: Batch, onTaken?: () => void): void {
  if (batch.length === 1) {
    res.end(batch[0], onTaken);
    return;
  }
  res.cork();
  for (const chunk of batch) res.write(chunk);
  res.end(onTaken);
  res.uncork();
}

const bytesIn = (batch: Batch): number => batch.reduce((sum, chunk) => sum + chunk.length, 0);

function refuse(req: IncomingMessage, res: ServerResponse, init: ServeBytesInit, error: unknown): ByteOutcome {
  if (req.socket.destroyed) return { status: 0, body_bytes: 0, result: 'client_gone', error };
  if (init.refuse !== undefined) init.refuse(error);
  else {
    const { status, headers, body } = problemFor(error, init.corr_id);
    res.writeHead(status, { ...init.headers, ...headers });
    res.end(req.method === 'HEAD' ? undefined : body);
  }
  return { status: res.statusCode, body_bytes: 0, result: 'refused', error };
}

/** Why a transfer ended early; thrown out of whatever it was waiting for. */
interface Cut {
  readonly reason: CutReason;
  readonly error: unknown;
}

type Wait = 'turn' | 'source' | 'client';

/** One body on its way. Everything it waits for is one parked waiter, which a cut fails. */
class Transfer {
  readonly #req: IncomingMessage;
  readonly #res: ServerResponse;
  readonly #init: ServeBytesInit;
  readonly #length: number;
  readonly #reading = new AbortController();
  readonly #watch = new TransferWatch();
  #waiter: Parked<unknown> | undefined;
  #waiting: Wait | undefined;
  #waiting_since_ms = 0;
  #cut: Cut | undefined;
  #timer: Timer | undefined;
  /** What the source gave, and how much of that the kernel took. */
  #given_bytes = 0;
  #taken_bytes = 0;
  #turn_bytes = 0;

  constructor(req: IncomingMessage, res: ServerResponse, init: ServeBytesInit, length: number) {
    this.#req = req;
    this.#res = res;
    this.#init = init;
    this.#length = length;
    res.once('close', this.#onClose);
    init.signal.addEventListener('abort', this.#onAbort, { once: true });
    if (req.socket.destroyed) this.#onClose();
    else if (init.signal.aborted) this.#onAbort();
    this.#arm();
  }

  /** Streams the source; `sendHead` is called when its first batch is in hand. */
  async run(read: (signal: AbortSignal) => AsyncIterable<Batch>, sendHead: () => void): Promise<ByteOutcome> {
    let iterator: AsyncIterator<Batch> | undefined;
    try {
      await this.#turn();
      iterator = read(this.#reading.signal)[Symbol.asyncIterator]();
      let batch = await this.#next(iterator);
      sendHead();
      while (this.#given_bytes < this.#length) {
        await this.#send(batch);
        batch = await this.#next(iterator);
      }
      await this.#sendLast(batch);
      return { status: this.#res.statusCode, body_bytes: this.#length, result: 'complete' };
    } catch (error) {
      return this.#failed(error);
    } finally {
      await this.#close(iterator);
    }
  }

  /** Waits until an answer that was handed over whole has left. */
  async finish(): Promise<ByteOutcome> {
    try {
      await this.#turn();
      if (!this.#res.writableFinished)
        await this.#wait<void>('client', (parked) => this.#res.once('finish', parked.wake));
      return { status: this.#res.statusCode, body_bytes: this.#length, result: 'complete' };
    } catch (error) {
      return this.#failed(error);
    } finally {
      await this.#close(undefined);
    }
  }

  /** A pipelined answer reads nothing, and is owed nothing by the client, until the answers before it are out. */
  async #turn(): Promise<void> {
    const res = this.#res;
    if (res.socket !== null || res.writableFinished) return;
    await this.#wait<void>('turn', (parked) => res.once('socket', () => parked.wake()));
  }

  /** The next batch, which must fit into what is still promised. */
  async #next(iterator: AsyncIterator<Batch>): Promise<Batch> {
    const result = await this.#wait<IteratorResult<Batch>>('source', (parked) => {
      iterator.next().then(parked.wake, parked.fail);
    });
    const left = this.#length - this.#given_bytes;
    assert(result.done !== true, `the source ended ${left} bytes early`);
    const bytes = bytesIn(result.value);
    assert(bytes > 0 && result.value.every((chunk) => chunk.length > 0), 'the source yielded an empty chunk');
    assert(bytes <= left, `the source yielded ${bytes - left} bytes too many`);
    this.#given_bytes += bytes;
    return result.value;
  }

  async #send(batch: Batch): Promise<void> {
    await this.#wait<void>('client', (parked) => {
      const onTaken = (error?: Error | null): void => (error ? this.#end('client_gone', error) : parked.wake());
      const last = batch.length - 1;
      if (last > 0) this.#res.cork();
      batch.forEach((chunk, index) => this.#res.write(chunk, index === last ? onTaken : undefined));
      if (last > 0) this.#res.uncork();
    });
    const bytes = bytesIn(batch);
    this.#taken_bytes += bytes;
    this.#turn_bytes += bytes;
    if (this.#turn_bytes < TURN_BYTES) return;
    this.#turn_bytes = 0;
    await sched.pause('bytes');
  }

  async #sendLast(batch: Batch): Promise<void> {
    await this.#wait<void>('client', (parked) => endWith(this.#res, batch, () => parked.wake()));
    this.#taken_bytes = this.#length;
  }

  #wait<T>(waiting: Wait, begin: (parked: Parked<T>) => void): Promise<T> {
    const parked = sched.park<T>(`bytes.${waiting}`);
    this.#waiter = parked as Parked<unknown>;
    this.#waiting = waiting;
    this.#waiting_since_ms = sched.now_ms();
    if (this.#cut === undefined) begin(parked);
    else parked.fail(this.#cut.error);
    return parked.promise;
  }

  /** Ends the transfer for a reason from outside. The first one counts. */
  #end(reason: CutReason, error: unknown): void {
    if (this.#cut !== undefined) return;
    this.#cut = { reason, error };
    this.#reading.abort(error);
    this.#waiter?.fail(error);
  }

  #failed(error: unknown): ByteOutcome {
    const reason = this.#cut?.reason ?? 'source';
    if (!this.#res.headersSent) {
      if (reason !== 'client_gone') return refuse(this.#req, this.#res, this.#init, error);
      this.#req.socket.destroy();
      return { status: 0, body_bytes: 0, result: reason, error };
    }
    this.#req.socket.destroy();
    return { status: this.#res.statusCode, body_bytes: this.#taken_bytes, result: reason, error };
  }

  /** Gives everything back. A source that does not let go is not waited for longer than `stall_ms`. */
  async #close(iterator: AsyncIterator<Batch> | undefined): Promise<void> {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#res.off('close', this.#onClose);
    this.#init.signal.removeEventListener('abort', this.#onAbort);
    if (iterator?.return === undefined) return;
    const parked = sched.park<void>('bytes.close');
    const timer = sched.timer(this.#init.stall_ms, () => parked.wake(), 'bytes.close');
    iterator.return().then(
      () => parked.wake(),
      () => parked.wake(), // How a source ends after it was told to is its own affair: the answer is decided.
    );
    await parked.promise;
    timer.cancel();
  }

  #arm(): void {
    this.#timer = sched.timer(this.#init.stall_ms / 4, this.#look, 'bytes.stall');
  }

  readonly #look = (): void => {
    if (this.#timer === undefined) return;
    const now_ms = sched.now_ms();
    const { stall_ms } = this.#init;
    if (this.#waiting === 'client') {
      const verdict = this.#watch.check(now_ms, sentBytes(this.#req.socket), this.#init);
      if (verdict !== 'ok') this.#end(verdict, new RonError('timeout', 'the client does not read', { op: 'write' }));
    } else {
      // The client owes nothing now. A turn is bounded by the answers before it, which have their own limits.
      this.#watch.rest();
      if (this.#waiting === 'source' && now_ms - this.#waiting_since_ms >= stall_ms)
        this.#end('source', new RonError('timeout', `the bytes did not come for ${stall_ms} ms`, { op: 'read' }));
    }
    this.#arm();
  };

  readonly #onClose = (): void => {
    this.#end('client_gone', new RonError('canceled', 'the client went away'));
  };

  readonly #onAbort = (): void => {
    this.#end('aborted', this.#init.signal.reason);
  };
}
