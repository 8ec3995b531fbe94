/** The part of `fetch` that the client uses. The platform's `fetch` and the leaner `nodeFetch` implement it. */

export interface ByteReader {
  /** The next piece; the reader owns its memory. */
  read(): Promise<{ done: false; value: Uint8Array } | { done: true; value?: Uint8Array | undefined }>;
  /** Discards the rest. */
  cancel(): Promise<void>;
}

/** A body that is read once, as it arrives. */
export interface ByteStream {
  getReader(): ByteReader;
  cancel(): Promise<void>;
}

export interface Answer {
  readonly status: number;
  readonly headers: Pick<Headers, 'get' | 'has'>;
  /** The URL of the response; empty if unknown. */
  readonly url: string;
  readonly body: ByteStream | null;
  json(): Promise<unknown>;
}

export interface FetchInit {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>;
  readonly signal: AbortSignal;
  readonly redirect: 'error';
  readonly cache: 'no-store';
  readonly credentials: 'omit';
  /** Required by the platform for streamed bodies. */
  readonly duplex?: 'half';
  /** For a new connection. The platform's `fetch` ignores it. */
  readonly connect_ms?: number;
}

export interface Fetch {
  (url: URL, init: FetchInit): Promise<Answer>;
  /** Whether it sends a stream while it reads it, and requests a piece only after it has sent the one before the last. */
  readonly sendsStreams?: boolean;
}
