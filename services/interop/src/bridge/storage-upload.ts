/**
 * One write to storage whose body is sent in chunks, so that the last one can be held back.
 *
 *     using upload = await StorageUpload.open(init);
 *     if ((await upload.write(chunk)) === 'taken') ...;
 *     const answer = await deadline.run((signal) => upload.finish(last, signal));
 *
 * Contract: `write` resolves once the kernel has taken the chunk, or with `answered` if storage has answered early: it wants no
 * more then. Storage stores nothing of an upload that was not finished: disposal cuts its connection.
 * Bound: one chunk, and the buffer of the socket. A connection of its own: a kept one may be closed under a body that cannot be
 * sent twice.
 * Cancellation: `connect_ms` for the connection, `write_ms` for each chunk, the signal of `finish`, disposal.
 */
import { AnswerError } from '@ron/client';
import { NodeAnswer } from '@ron/client/node';
import { LATE, onAbort, RonError, sched, withTimeout, type Parked } from '@ron/kernel';
import { request, type ClientRequest, type IncomingMessage } from '@ron/kernel/http';
import type { AnswerHeaders } from '@ron/ingress';

export interface StorageUploadInit {
  readonly socketPath: string;
  readonly method: 'PUT' | 'POST';
  readonly path: string;
  readonly headers: AnswerHeaders;
  readonly connect_ms: number;
  readonly write_ms: number;
  /** Called when storage has not taken a chunk in time. */
  readonly onWriteTimeout: () => void;
}

/** `answered`: storage has answered, or the request has failed: `answer` returns or throws it. */
type Step = 'taken' | 'answered';

/** The Host that a service accepts at its Unix socket. */
const HOST = 'localhost';

export class StorageUpload implements Disposable {
  readonly #sent: ClientRequest;
  readonly #init: StorageUploadInit;
  readonly #head: Parked<IncomingMessage> = sched.park('storage.head');
  /** Whether storage has answered, or the request has failed. */
  #isOver = false;
  /** The pending step. Not a race of promises: each would stay registered at the head until the end of the upload. */
  #step: Parked<Step> | undefined;

  private constructor(init: StorageUploadInit) {
    const { socketPath, method, path, headers } = init;
    this.#init = init;
    this.#sent = request({ socketPath, method, path, headers: { ...headers, Host: HOST }, agent: false });
    this.#sent.once('response', (message) => {
      this.#head.wake(message);
      this.#end();
    });
    // Stays: an error event without a listener would end the process.
    this.#sent.on('error', (error) => {
      this.#head.fail(broken(error));
      this.#end();
    });
    this.#head.promise.catch(() => undefined);
  }

  static async open(init: StorageUploadInit): Promise<StorageUpload> {
    const upload = new StorageUpload(init);
    try {
      await upload.#connect(init.connect_ms);
      return upload;
    } catch (error) {
      upload[Symbol.dispose]();
      throw error;
    }
  }

  /** [interop I-9] Waits until storage takes the chunk: meanwhile the next one is not read from the client. */
  async write(chunk: Uint8Array): Promise<Step> {
    if (this.#isOver) return 'answered';
    const step = (this.#step = sched.park<Step>('storage.write'));
    // After a refusal of storage writes fail; the answer, or the error of the request, says why.
    this.#sent.write(chunk, (error) => step.wake(error ? 'answered' : 'taken'));
    const { write_ms, onWriteTimeout } = this.#init;
    const outcome = await withTimeout(step.promise, write_ms);
    if (outcome !== LATE) return outcome;
    onWriteTimeout();
    throw new RonError('timeout', `storage took no bytes for ${write_ms} ms`, { op: 'write' });
  }

  /** Sends the last chunk, if there is one, and waits for the answer. */
  async finish(last: Uint8Array | undefined, signal: AbortSignal): Promise<NodeAnswer> {
    this.#sent.end(last);
    return await this.answer(signal);
  }

  /** Waits for the answer, also to a body that was not sent to its end. */
  async answer(signal: AbortSignal): Promise<NodeAnswer> {
    using _ = onAbort(signal, (reason) => this.#head.fail(reason));
    const message = await this.#head.promise;
    return new NodeAnswer(message, new URL(`http://${HOST}`));
  }

  async #connect(connect_ms: number): Promise<void> {
    const step = (this.#step = sched.park<Step>('storage.connect'));
    this.#sent.once('socket', (socket) => {
      if (socket.connecting) socket.once('connect', () => step.wake('taken'));
      else step.wake('taken');
    });
    const outcome = await withTimeout(step.promise, connect_ms);
    if (outcome === 'answered') await this.#head.promise;
    if (outcome !== LATE) return;
    const init = { op: 'connect', details: { system_code: 'ETIMEDOUT' } };
    throw new RonError('unreachable', `storage accepted no connection within ${connect_ms} ms`, init);
  }

  #end(): void {
    this.#isOver = true;
    this.#step?.wake('answered');
  }

  [Symbol.dispose](): void {
    this.#sent.destroy();
  }
}

function broken(error: Error): RonError {
  const system_code = 'code' in error && typeof error.code === 'string' ? error.code : 'unknown';
  const details = { system_code };
  return new RonError('unreachable', `the connection to storage failed (${system_code})`, { cause: error, details });
}

/** The error for an answer of storage that refuses the exchanged capability. Others concern the request and stay as they are. */
export function refusalByStorage(error: unknown): unknown {
  if (!(error instanceof AnswerError)) return error;
  const { http_status, message } = error;
  if (http_status === 401) return new RonError('unauthorized', `storage: ${message}`, { reason: 'EXPIRED_TOKEN' });
  if (http_status === 403) return new RonError('forbidden', `storage: ${message}`, { reason: 'SCOPE_MISMATCH' });
  return error;
}
