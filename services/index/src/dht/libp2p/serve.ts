/**
 * Answers the requests of other peers: frames and bounds are ours, the handlers are those of kad-dht, which would read messages
 * of 4 MiB and keep every address in them.
 *
 * Contract: the requests of a stream are answered in order. A malformed or refused request resets its stream.
 * Bound: `REQUEST_BYTES_MAX` per message; `QUEUED_MAX` messages per stream, beyond that the stream is reset; above `PAUSE_AT` the
 * stream is not read; `IN_FLIGHT_MAX` requests of all streams at once, beyond that the stream is reset.
 * A stream without a request, or whose peer does not read the answer, is reset after `IDLE_MS`.
 */
import type { PeerId, Stream, StreamHandler } from '@libp2p/interface';
import { RonError, sched, type Timer } from '@ron/kernel';
import { endpointOf } from './addresses.ts';
import { FrameReader } from './frame-reader.ts';
import { decodeMessage, encodeMessage, KAD, type KadMessage, type KadPeer, type KadType } from './message.ts';

/** A name record has 1 KiB; the addresses of a provider have less. */
const REQUEST_BYTES_MAX = 16 * 1024;
const PAUSE_AT = 64;
const QUEUED_MAX = 1024;
const IN_FLIGHT_MAX = 256;
const IDLE_MS = 10_000;

/** The handlers of kad-dht. */
export interface KadRpc {
  handleMessage(peer: PeerId, message: StockMessage): Promise<StockMessage | undefined>;
}

export interface StockMessage {
  type: string;
  key?: Uint8Array | undefined;
  record?: Uint8Array | undefined;
  closer: StockPeer[];
  providers: StockPeer[];
}

interface StockPeer {
  id: Uint8Array;
  multiaddrs: Uint8Array[];
}

const NAMES = Object.keys(KAD);
const TYPES = new Map(Object.entries(KAD));

export class KadServer {
  readonly #rpc: KadRpc;
  #inFlight = 0;

  constructor(rpc: KadRpc) {
    this.#rpc = rpc;
  }

  readonly onStream: StreamHandler = async (stream, connection) => {
    await new InboundStream(stream, (frame) => this.handle(connection.remotePeer, decodeMessage(frame))).done;
  };

  /** Resolves with the answer; undefined if the request has none. */
  async handle(peer: PeerId, request: KadMessage): Promise<KadMessage | undefined> {
    if (this.#inFlight >= IN_FLIGHT_MAX) throw new RonError('busy', 'too many DHT requests', { op: 'dht_serve' });
    this.#inFlight++;
    try {
      const answer = await this.#rpc.handleMessage(peer, toStock(request));
      return answer && fromStock(answer);
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

function toStock(message: KadMessage): StockMessage {
  return {
    type: NAMES[message.type]!,
    key: message.key,
    record: message.record,
    closer: [],
    providers: message.providers.map(({ id, addrs }) => ({
      id,
      multiaddrs: addrs.filter((addr) => endpointOf(addr) !== undefined),
    })),
  };
}

const fromStockPeer = ({ id, multiaddrs }: StockPeer): KadPeer => ({ id, addrs: multiaddrs });

function fromStock(message: StockMessage): KadMessage {
  return {
    type: TYPES.get(message.type) as KadType,
    key: message.key,
    record: message.record,
    closer: message.closer.map(fromStockPeer),
    providers: message.providers.map(fromStockPeer),
  };
}
