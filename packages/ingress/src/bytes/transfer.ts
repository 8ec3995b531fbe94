/**
 * One body on its way to a client: the part of byte serving that waits.
 *
 * Contract, bound and cancellation: those of `bytes.ts`. Each wait is one parked waiter, which a cut fails. The wait for
 * the client ends when the sweeper closes a connection whose client does not read. Batches are requested in turns, because
 * libuv accepts one connection per event loop iteration: long iterations would keep new clients waiting in the listen queue.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { assert, onAbort, RonError, sched } from '@ron/kernel';
import type { Parked, Timer } from '@ron/kernel';
import type { Batch, ByteOutcome, CutReason, ServeBytesInit } from './bytes.ts';
import { problemFor } from '../answer/problem.ts';
import { Connection } from '../connection/connection.ts';
import { FairScheduler, type AddressShare } from '../connection/fair-scheduler.ts';

/** The batches of one address in one event loop iteration, however many connections it has. */
export const BATCHES_MAX = 4;

const scheduler = new FairScheduler(BATCHES_MAX);

const bytesIn = (batch: Batch): number => batch.reduce((sum, chunk) => sum + chunk.length, 0);

/** The reason why a transfer ended early; thrown by the pending wait. */
interface Cut {
  readonly reason: CutReason;
  readonly error: unknown;
}

type Wait = 'turn' | 'source' | 'client';

export class Transfer {
  readonly #req: IncomingMessage;
  readonly #res: ServerResponse;
  readonly #init: ServeBytesInit;
  readonly #length: number;
  readonly #reading = new AbortController();
  readonly #share: AddressShare;
  #waiter: Parked<unknown> | undefined;
  #waiting: Wait | undefined;
  #waiting_since_ms = 0;
  #cut: Cut | undefined;
  readonly #registration: Disposable;
  #timer: Timer | undefined;
  /** Bytes that the source yielded, and those of them that the kernel accepted. */
  #given_bytes = 0;
  #taken_bytes = 0;
  #last_next: Promise<unknown> | undefined;

  constructor(req: IncomingMessage, res: ServerResponse, init: ServeBytesInit, length: number) {
    this.#req = req;
    this.#res = res;
    this.#init = init;
    this.#length = length;
    this.#share = scheduler.shareOf(Connection.of(req.socket)?.ticket.address);
    res.once('close', this.#onClose);
    if (req.socket.destroyed) this.#onClose();
    this.#registration = onAbort(init.signal, (reason) => this.#end('aborted', reason));
    this.#arm();
  }

  /** Streams the source; `sendHead` is called once its first batch is read. */
  async run(read: (signal: AbortSignal) => AsyncIterable<Batch>, sendHead: () => void): Promise<ByteOutcome> {
    let iterator: AsyncIterator<Batch> | undefined;
    try {
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

  /** Waits until an answer that was written completely is sent. */
  async finish(): Promise<ByteOutcome> {
    try {
      if (!this.#res.writableFinished)
        await this.#wait<void>('client', (parked) => this.#res.once('finish', parked.wake));
      return { status: this.#res.statusCode, body_bytes: this.#length, result: 'complete' };
    } catch (error) {
      return this.#failed(error);
    } finally {
      await this.#close(undefined);
    }
  }

  /** The next batch, which must not exceed the announced length. */
  async #next(iterator: AsyncIterator<Batch>): Promise<Batch> {
    if (!scheduler.tryStart(this.#share))
      await this.#wait<void>('turn', (parked) => scheduler.defer(this.#share, parked.wake));
    const result = await this.#wait<IteratorResult<Batch>>('source', (parked) => {
      const next = iterator.next();
      this.#last_next = next;
      next.then(parked.wake, parked.fail);
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
    this.#taken_bytes += bytesIn(batch);
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

  /** Ends the transfer for an external reason. The first one counts. */
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

  /** Releases everything. Waits at most `stall_ms` for the source to end. */
  async #close(iterator: AsyncIterator<Batch> | undefined): Promise<void> {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#res.off('close', this.#onClose);
    this.#registration[Symbol.dispose]();
    if (iterator === undefined) return;
    const returned = (async () => iterator.return?.())();
    const parked = sched.park<void>('bytes.close');
    const timer = sched.timer(this.#init.stall_ms, () => parked.wake(), 'bytes.close');
    // The outcome of the source no longer matters: the answer is decided.
    void Promise.allSettled([this.#last_next, returned]).then(() => parked.wake());
    await parked.promise;
    timer.cancel();
  }

  #arm(): void {
    this.#timer = sched.timer(this.#init.stall_ms / 4, this.#checkSource, 'bytes.stall');
  }

  readonly #checkSource = (): void => {
    if (this.#timer === undefined) return;
    const { stall_ms } = this.#init;
    if (this.#waiting === 'source' && sched.now_ms() - this.#waiting_since_ms >= stall_ms)
      this.#end('source', new RonError('timeout', `the source yielded nothing for ${stall_ms} ms`, { op: 'read' }));
    this.#arm();
  };

  readonly #onClose = (): void => {
    this.#end('client_gone', new RonError('canceled', 'the client disconnected'));
  };
}

/** Writes the end of an answer in one write. */
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

/** Answers with a problem instead of the bytes. */
export function refuse(req: IncomingMessage, res: ServerResponse, init: ServeBytesInit, error: unknown): ByteOutcome {
  if (req.socket.destroyed) return { status: 0, body_bytes: 0, result: 'client_gone', error };
  if (init.refuse !== undefined) init.refuse(error);
  else {
    const { status, headers, body } = problemFor(error, init.corr_id);
    res.writeHead(status, { ...init.headers, ...headers });
    res.end(req.method === 'HEAD' ? undefined : body);
  }
  return { status: res.statusCode, body_bytes: 0, result: 'refused', error };
}
