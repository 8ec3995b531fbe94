/**
 * Keeps streams to peers for the next request: opening one costs a negotiation and two writes to the peer store.
 *
 * Contract: `exchange` uses an idle stream of the peer or opens one. A kept stream that the peer has closed meanwhile is
 * replaced once; every request of the DHT is idempotent.
 * Bound: `PER_PEER_MAX` streams in use per peer and `IN_USE_MAX` in all, beyond that `busy`; `IDLE_PER_PEER_MAX` and `IDLE_MAX`
 * idle ones, beyond that the longest idle one is closed. An idle stream is closed after `IDLE_MS`.
 * Cancellation: by the signal of the request. Disposal resets all streams and fails their requests.
 */
import type { Stream } from '@libp2p/interface';
import { isRonError, RonError, sched, type Timer } from '@ron/kernel';
import { KeptStream } from './kept-stream.ts';
import type { KadMessage } from './message.ts';

const PER_PEER_MAX = 64;
const IN_USE_MAX = 512;
const IDLE_PER_PEER_MAX = 16;
const IDLE_MAX = 256;
/** kad-dht resets a stream on which it read nothing for 10 s. */
const IDLE_MS = 5000;
const SWEEP_MS = 1000;

export class StreamPool implements Disposable {
  /** In the order of their last use. */
  readonly #idle = new Set<KeptStream>();
  readonly #idleOf = new Map<string, KeptStream[]>();
  readonly #inUse = new Set<KeptStream>();
  readonly #inUseOf = new Map<string, number>();
  /** Half-closed since the last sweep: reset by the next one if the peer does not end its side. */
  #closing = new Set<KeptStream>();
  #requests = 0;
  #timer: Timer | undefined;
  #isClosed = false;

  get size(): { readonly idle: number; readonly inUse: number } {
    return { idle: this.#idle.size, inUse: this.#inUse.size };
  }

  /** Sends bytes to the peer and resolves with its answer. `open` is called if no stream is idle. */
  async exchange(
    peer: string,
    bytes: Uint8Array,
    signal: AbortSignal,
    open: () => Promise<Stream>,
  ): Promise<KadMessage> {
    signal.throwIfAborted();
    using _ = this.#admit(peer);
    const kept = this.#takeIdle(peer);
    if (kept !== undefined) {
      try {
        return await this.#exchangeOn(kept, bytes, signal);
      } catch (error) {
        if (signal.aborted || !isRonError(error, 'unreachable')) throw error;
      }
    }
    const stream = await open();
    return await this.#exchangeOn(new KeptStream(peer, stream), bytes, signal);
  }

  /** Counts the request until it is disposed. */
  #admit(peer: string): Disposable {
    const count = this.#inUseOf.get(peer) ?? 0;
    if (this.#isClosed) throw new RonError('closed', 'the DHT is closed');
    if (count >= PER_PEER_MAX || this.#requests >= IN_USE_MAX)
      throw new RonError('busy', 'too many DHT requests in flight', { op: 'dht_request' });
    this.#inUseOf.set(peer, count + 1);
    this.#requests++;
    return {
      [Symbol.dispose]: () => {
        this.#requests--;
        const left = this.#inUseOf.get(peer)! - 1;
        if (left === 0) this.#inUseOf.delete(peer);
        else this.#inUseOf.set(peer, left);
      },
    };
  }

  async #exchangeOn(stream: KeptStream, bytes: Uint8Array, signal: AbortSignal): Promise<KadMessage> {
    this.#inUse.add(stream);
    try {
      return await stream.exchange(bytes, signal);
    } finally {
      this.#inUse.delete(stream);
      if (this.#isClosed) stream.abort(new RonError('closed', 'the DHT is closed'));
      else if (stream.isOpen) this.#keep(stream);
    }
  }

  #takeIdle(peer: string): KeptStream | undefined {
    // The one used last: the others can time out.
    const stream = this.#idleOf.get(peer)?.at(-1);
    if (stream === undefined) return undefined;
    this.#forget(stream);
    return stream;
  }

  #keep(stream: KeptStream): void {
    const ofPeer = this.#idleOf.get(stream.peer) ?? [];
    if (ofPeer.length === 0) this.#idleOf.set(stream.peer, ofPeer);
    ofPeer.push(stream);
    this.#idle.add(stream);
    stream.onClose = () => this.#forget(stream);
    if (ofPeer.length > IDLE_PER_PEER_MAX) this.#close(ofPeer[0]!);
    if (this.#idle.size > IDLE_MAX) this.#close(this.#idle.values().next().value!);
    this.#timer ??= sched.timer(SWEEP_MS, () => this.#sweep(), 'dht_streams');
  }

  #forget(stream: KeptStream): void {
    stream.onClose = undefined;
    this.#idle.delete(stream);
    const ofPeer = this.#idleOf.get(stream.peer);
    const at = ofPeer?.indexOf(stream) ?? -1;
    if (at >= 0) ofPeer!.splice(at, 1);
    if (ofPeer?.length === 0) this.#idleOf.delete(stream.peer);
  }

  #close(stream: KeptStream): void {
    this.#forget(stream);
    this.#closing.add(stream);
    stream.onClose = () => this.#closing.delete(stream);
    stream.close();
  }

  #sweep(): void {
    this.#timer = undefined;
    const late = this.#closing;
    this.#closing = new Set();
    for (const stream of late) stream.abort(new RonError('unreachable', 'the peer did not close the stream'));
    const oldest_ms = sched.now_ms() - IDLE_MS;
    for (const stream of this.#idle) {
      if (stream.idle_since_ms > oldest_ms) break;
      this.#close(stream);
    }
    if (this.#idle.size + this.#closing.size > 0)
      this.#timer = sched.timer(SWEEP_MS, () => this.#sweep(), 'dht_streams');
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#timer?.cancel();
    const reason = new RonError('closed', 'the DHT is closed');
    for (const stream of [...this.#idle, ...this.#closing, ...this.#inUse]) stream.abort(reason);
  }
}
