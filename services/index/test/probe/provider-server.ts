/** A storage that serves proofs of objects in memory, or misbehaves as its handler says. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import { addressOf } from '@ron/client';
import type { Address } from '@ron/proto';
import { encodeSlice, GROUP_BYTES, parentValue, subtreeValue, type Tree } from '@ron/simd';

type Handler = (request: IncomingMessage, response: ServerResponse, slice: Buffer | undefined) => void;

const BAO = { 'content-type': 'application/vnd.ron.bao', 'ron-group-bytes': String(GROUP_BYTES) };

export const honest: Handler = (_request, response, slice) => {
  if (slice === undefined) response.writeHead(404).end();
  else response.writeHead(200, BAO).end(slice);
};

export const sends =
  (change: (slice: Buffer) => Buffer): Handler =>
  (request, response, slice) =>
    honest(request, response, slice && change(slice));

export const answers =
  (status: number, headers: Record<string, string> = {}): Handler =>
  (_request, response) =>
    void response.writeHead(status, headers).end();

/** Valid bytes, then more without end. */
export const endless: Handler = (_request, response, slice) => {
  response.writeHead(200, BAO).write(slice ?? '');
  const more = Buffer.alloc(65_536);
  const write = (): void => {
    while (!response.destroyed && response.write(more));
  };
  response.on('drain', write);
  write();
};

/** Accepts the request and never answers. */
export const stalls: Handler = () => undefined;

export class ProviderServer implements AsyncDisposable {
  readonly #objects = new Map<string, Uint8Array>();
  readonly #server = createServer((request, response) => void this.#serve(request, response));
  handler: Handler = honest;
  /** The offsets that were requested. */
  readonly offsets: number[] = [];

  static async start(): Promise<ProviderServer> {
    const started = new ProviderServer();
    started.#server.listen(0, '127.0.0.1');
    await once(started.#server, 'listening');
    return started;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  put(bytes: Uint8Array): Address {
    const address = addressOf(bytes);
    this.#objects.set(address, bytes);
    return address;
  }

  /** Serves the bytes of one object in place of another. */
  alias(address: Address, bytes: Uint8Array): void {
    this.#objects.set(address, bytes);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url!, this.url);
    const offset = Number(url.searchParams.get('offset'));
    this.offsets.push(offset);
    const bytes = this.#objects.get(url.pathname.slice('/o/'.length));
    const length = Number(url.searchParams.get('length'));
    this.handler(request, response, bytes && (await sliceOf(bytes, offset, length)));
  }
}

async function sliceOf(bytes: Uint8Array, offset: number, length: number): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const batch of encodeSlice(treeOf(bytes), offset, length, new AbortController().signal))
    parts.push(...batch);
  return Buffer.concat(parts);
}

function treeOf(bytes: Uint8Array): Tree {
  const group = (index: number): Uint8Array => bytes.subarray(index * GROUP_BYTES, (index + 1) * GROUP_BYTES);
  const value = (first: number, count: number): Uint8Array => {
    if (count === 1) return subtreeValue(group(first), first * GROUP_BYTES);
    const left = 2 ** (Math.ceil(Math.log2(count)) - 1);
    return parentValue(value(first, left), value(first + left, count - left), false);
  };
  async function* groups(first: number, last: number): AsyncGenerator<readonly Uint8Array[]> {
    for (let at = first; at <= last; at++) yield [group(at)];
  }
  return {
    size: bytes.length,
    group_bytes: GROUP_BYTES,
    value: (first, count) => Promise.resolve(value(first, count)),
    groups,
  };
}
