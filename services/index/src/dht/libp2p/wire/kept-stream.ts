/**
 * One stream to a peer, for many requests, one at a time.
 *
 * Contract: `exchange` sends bytes and resolves with the next message of the peer. Failures: `unreachable` if the peer closed
 * or reset the stream, `bad_gateway` if it sent a message that is malformed, too long or was not requested.
 * After a failure, and after an abort, the stream is closed: a late answer would look like that to the next request.
 * Bound: one incomplete frame; the bytes sent by the caller. Cancellation: by the signal, at once.
 */
import type { Stream } from '@libp2p/interface';
import { assert, onAbort, RonError, sched, type Parked } from '@ron/kernel';
import { FrameReader } from './frame-reader.ts';
import { decodeMessage, type KadMessage } from './message.ts';

/** 20 closer peers and 32 providers with a few addresses each need 16 KiB. */
export const ANSWER_BYTES_MAX = 128 * 1024;

export class KeptStream {
  readonly peer: string;
  /** Called once when the stream is closed, for any reason. */
  onClose: (() => void) | undefined;
  /** When the last exchange ended; monotonic. */
  idle_since_ms = sched.now_ms();
  readonly #stream: Stream;
  readonly #frames = new FrameReader(ANSWER_BYTES_MAX);
  #pending: Parked<KadMessage> | undefined;
  #isOpen = true;

  constructor(peer: string, stream: Stream) {
    this.peer = peer;
    this.#stream = stream;
    stream.addEventListener('message', (event) => this.#read(event.data));
    stream.addEventListener('close', () => this.#end(new RonError('unreachable', 'the peer closed the stream')));
    stream.addEventListener('remoteCloseWrite', () =>
      this.#fail(new RonError('unreachable', 'the peer ended the stream')),
    );
  }

  get isOpen(): boolean {
    return this.#isOpen && this.#stream.status === 'open' && this.#stream.writeStatus === 'writable';
  }

  async exchange(bytes: Uint8Array, signal: AbortSignal): Promise<KadMessage> {
    assert(this.#pending === undefined, 'one request at a time per stream');
    signal.throwIfAborted();
    if (!this.isOpen) throw new RonError('unreachable', 'the stream is closed');
    const parked = sched.park<KadMessage>('dht_answer');
    this.#pending = parked;
    // [index I-5] An abort resets the stream, so that the peer stops as well.
    using _ = onAbort(signal, (reason) => this.#fail(reason));
    try {
      // Bytes beyond the window of the peer wait in the write buffer; no other request follows them.
      this.#stream.send(bytes);
    } catch (error) {
      this.#fail(new RonError('unreachable', 'the stream does not accept data', { cause: error }));
    }
    return await parked.promise;
  }

  /** Ends the sending side; the peer then ends its own. */
  close(): void {
    this.#stream.close().catch((error: unknown) => this.abort(error));
  }

  abort(reason: unknown): void {
    this.#fail(reason);
  }

  #read(data: Uint8Array | { subarray: () => Uint8Array }): void {
    try {
      const frames = this.#frames.push(data instanceof Uint8Array ? data : data.subarray());
      const [frame] = frames;
      if (frame === undefined) return;
      const pending = this.#pending;
      if (pending === undefined || frames.length > 1 || !this.#frames.isEmpty)
        throw new RonError('bad_gateway', 'the peer sent a message that was not requested');
      const message = decodeMessage(frame);
      this.#pending = undefined;
      this.idle_since_ms = sched.now_ms();
      pending.wake(message);
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(reason: unknown): void {
    if (!this.#isOpen) return;
    this.#end(reason);
    this.#stream.abort(reason instanceof Error ? reason : new Error('aborted'));
  }

  #end(reason: unknown): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#pending?.fail(reason);
    this.#pending = undefined;
    this.onClose?.();
    this.onClose = undefined;
  }
}
