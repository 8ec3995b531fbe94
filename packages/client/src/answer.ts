/** What the client needs of `fetch`: the platform's does all of it, and so does a leaner one for Node. */

export interface ByteReader {
  /** The next piece, the reader's own from then on. */
  read(): Promise<{ done: false; value: Uint8Array } | { done: true; value?: Uint8Array | undefined }>;
  /** The rest is not wanted. */
  cancel(): Promise<void>;
}

/** A body on its way. It is read once. */
export interface ByteStream {
  getReader(): ByteReader;
  cancel(): Promise<void>;
}

export interface Answer {
  readonly status: number;
  readonly headers: Pick<Headers, 'get' | 'has'>;
  /** Where it came from; empty when nobody knows. */
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
  /** A stream is sent while it is read; the platform wants that stated. */
  readonly duplex?: 'half';
}

export interface Fetch {
  (url: URL, init: FetchInit): Promise<Answer>;
  /** Whether it sends a stream while it reads it, and asks for a piece only when it is done with the last but one. */
  readonly sendsStreams?: boolean;
}
