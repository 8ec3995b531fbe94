/** Servers for tests: one serves slices and can be made to lie, the other accepts uploads and can be made to fail. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { formatAddress } from '@ron/proto';
import { encodeSlice, parentValue, subtreeValue, type Tree } from '@ron/simd';

export type Handler = (request: IncomingMessage, response: ServerResponse) => unknown;

export async function serve(t: TestContext, handler: Handler): Promise<string> {
  const server = createServer((request, response) => void handler(request, response)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

export async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

const GROUP_BYTES = 65_536;

async function* inBatches(
  first: number,
  last: number,
  group: (index: number) => Uint8Array,
): AsyncGenerator<readonly Uint8Array[]> {
  for (let index = first; index <= last; index++) yield [group(index)];
}

/** The correct slice of `content` for a request. */
export async function honestSlice(content: Uint8Array, url: string): Promise<Buffer> {
  const query = new URL(url, 'http://x').searchParams;
  const group = (index: number): Uint8Array => content.subarray(index * GROUP_BYTES, (index + 1) * GROUP_BYTES);
  const value = (first: number, count: number): Uint8Array => {
    if (count === 1) return subtreeValue(group(first), first * GROUP_BYTES);
    const left = 2 ** (Math.ceil(Math.log2(count)) - 1);
    return parentValue(value(first, left), value(first + left, count - left), false);
  };
  const tree: Tree = {
    size: content.length,
    group_bytes: GROUP_BYTES,
    value: (first, count) => Promise.resolve(value(first, count)),
    groups: (first, last) => inBatches(first, last, group),
  };
  const parts: Uint8Array[] = [];
  const signal = new AbortController().signal;
  const [offset, length] = [Number(query.get('offset')), Number(query.get('length'))];
  for await (const batch of encodeSlice(tree, offset, length, signal)) parts.push(...batch);
  return Buffer.concat(parts);
}

export function sendSlice(response: ServerResponse, slice: Buffer, headers: Record<string, string> = {}): void {
  response.writeHead(200, {
    'Content-Type': 'application/vnd.ron.bao',
    'Content-Length': String(slice.length),
    ...headers,
  });
  response.end(slice);
}

export interface TusFaults {
  /** Called with the bytes of each PATCH before they are kept. Returns how many to keep before the connection breaks. */
  keep?: (patch: number, body: Buffer) => number | undefined;
  /** Answers instead of the server; true when it did. */
  instead?: Handler;
  /** The address to claim in place of the true one. */
  claim?: string;
}

/** A tus server in memory. */
export class TusServer {
  readonly uploads = new Map<string, { length: number; bytes: Buffer; metadata: string | undefined }>();
  readonly requests: string[] = [];
  patches = 0;
  created = 0;
  faults: TusFaults;

  constructor(faults: TusFaults = {}) {
    this.faults = faults;
  }

  handle: Handler = async (request, response) => {
    const { method, url, headers } = request;
    this.requests.push(`${method} ${url}`);
    if ((await this.faults.instead?.(request, response)) === true) return response;
    if (method === 'POST' && url === '/uploads') {
      const id = String((this.created += 1));
      const metadata = headers['upload-metadata'] as string | undefined;
      this.uploads.set(`/uploads/${id}`, {
        length: Number(headers['upload-length']),
        bytes: Buffer.alloc(0),
        metadata,
      });
      return response.writeHead(201, { Location: `/uploads/${id}`, 'Tus-Resumable': '1.0.0' }).end();
    }
    const upload = this.uploads.get(url!);
    if (upload === undefined) return response.writeHead(404).end();
    if (method === 'PATCH') {
      const body = await readBody(request);
      if (Number(headers['upload-offset']) !== upload.bytes.length) return response.writeHead(409).end();
      this.patches += 1;
      const kept = this.faults.keep?.(this.patches, body);
      upload.bytes = Buffer.concat([upload.bytes, body.subarray(0, kept)]);
      if (kept !== undefined) return request.socket.destroy();
    }
    const done = upload.bytes.length === upload.length;
    response.writeHead(method === 'HEAD' ? 200 : 204, {
      'Tus-Resumable': '1.0.0',
      'Upload-Offset': String(upload.bytes.length),
      'Upload-Length': String(upload.length),
      ...(done && {
        'Ron-Address': this.faults.claim ?? formatAddress(blake3(upload.bytes)),
        'Ron-Durability': 'fsynced=1; copies=1; target=1',
      }),
    });
    return response.end();
  };
}
