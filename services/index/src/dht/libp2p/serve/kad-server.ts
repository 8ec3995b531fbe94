/**
 * The streams that other peers open for their requests.
 *
 * Contract: the requests of a stream are answered in order. A malformed or refused request resets its stream.
 * Bound: `REQUEST_BYTES_MAX` per message; `QUEUED_MAX` messages per stream, beyond that the stream is reset; above `PAUSE_AT` the
 * stream is not read; `IN_FLIGHT_MAX` requests and `STREAMS_TOTAL_MAX` streams of all peers at once, beyond that the
 * stream is reset.
 * A stream without a request, or whose peer does not read the answer, is reset after `IDLE_MS`.
 */
import type { PeerId, Stream, StreamHandler } from '@libp2p/interface';
import { RonError, sched, type Timer } from '@ron/kernel';
import type { KadAnswers } from './kad-answers.ts';
import { FrameReader } from '../wire/frame-reader.ts';
import { decodeMessage, encodeMessage, type KadMessage } from '../wire/message.ts';

/** A name record has 1 KiB; the addresses of a provider have less. */
const REQUEST_BYTES_MAX = 16 * 1024;
const PAUSE_AT = 64;
const QUEUED_MAX = 1024;
const IN_FLIGHT_MAX = 256;
/** Of all connections: the incomplete messages of these take 64 MiB. */
const STREAMS_TOTAL_MAX = 4096;
const IDLE_MS = 10_000;

export class KadServer {
  readonly #answers: KadAnswers;
  #inFlight = 0;
  #streams = 0;

  constructor(answers: KadAnswers) {
    this.#answers = answers;
  }

  readonly onStream: StreamHandler = async (stream, connection) => {
    if (this.#streams >= STREAMS_TOTAL_MAX) throw new RonError('busy', 'too many DHT streams', { op: 'dht_serve' });
    this.#streams++;
    await new InboundStream(stream, (frame) => this.answer(connection.remotePeer, decodeMessage(frame))).done;
    this.#streams--;
  };

  /** Resolves with the answer; undefined if the request has none. */
  async answer(peer: PeerId, request: KadMessage): Promise<KadMessage | undefined> {
    if (this.#inFlight >= IN_FLIGHT_MAX) throw new RonError('busy', 'too many DHT requests', { op: 'dht_serve' });
    this.#inFlight++;
    try {
      return await this.#answers.answer(peer, request);
    } finally {
      this.#inFlight--;
    }
  }
}

/** Reads, handles and answers the messages of one stream until it ends. */
class InboundStream {
  readonly done: Promise<void>;
  readonly #stream: Stream;
  readonly #handle: (frame: Uint8Array) => Promise<KadMessage | undefined>;
  readonly #frames = new FrameReader(REQUEST_BYTES_MAX);
  readonly #queue: Uint8Array[] = [];
  readonly #end: () => void;
  #isRunning = false;
  #timer: Timer;

  constructor(stream: Stream, handle: (frame: Uint8Array) => Promise<KadMessage | undefined>) {
    this.#stream = stream;
    this.#handle = handle;
    const { promise, wake } = sched.park<void>('dht_inbound');
    this.done = promise;
    this.#end = wake;
    this.#timer = this.#idleTimer();
    stream.addEventListener('close', () => this.#onClose());
    stream.addEventListener('remoteCloseWrite', () => this.#finish());
    stream.addEventListener('message', (event) => this.#read(event.data));
  }

  #idleTimer(): Timer {
    return sched.timer(IDLE_MS, () => this.#reset(new RonError('timeout', 'idle DHT stream')), 'dht_inbound');
  }

  #read(data: Uint8Array | { subarray: () => Uint8Array }): void {
    try {
      this.#queue.push(...this.#frames.push(data instanceof Uint8Array ? data : data.subarray()));
      if (this.#queue.length > QUEUED_MAX) throw new RonError('busy', 'too many DHT messages on one stream');
      if (this.#queue.length > PAUSE_AT) this.#stream.pause();
      if (!this.#isRunning) void this.#run();
    } catch (error) {
      this.#reset(error);
    }
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    try {
      for (let frame = this.#queue.shift(); frame !== undefined; frame = this.#queue.shift()) await this.#answer(frame);
      if (this.#stream.readStatus === 'paused') this.#stream.resume();
    } catch (error) {
      this.#reset(error);
    }
    this.#isRunning = false;
    if (this.#stream.remoteWriteStatus !== 'writable') this.#finish();
  }

  async #answer(frame: Uint8Array): Promise<void> {
    const answer = await this.#handle(frame);
    if (answer !== undefined && !this.#stream.send(encodeMessage(answer))) await this.#stream.onDrain();
    this.#timer.cancel();
    if (this.#stream.status === 'open') this.#timer = this.#idleTimer();
  }

  /** The peer sends no more: ends our side once everything is answered. */
  #finish(): void {
    if (!this.#isRunning) this.#stream.close().catch((error: unknown) => this.#reset(error));
  }

  #reset(error: unknown): void {
    this.#queue.length = 0;
    this.#stream.abort(error instanceof Error ? error : new Error('aborted'));
  }

  #onClose(): void {
    this.#queue.length = 0;
    this.#timer.cancel();
    this.#end();
  }
}
