/** A hostile HTTPS server on loopback, and a client that trusts its authority and reaches it as `origin.test`. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer as createTcpServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { Deadline, isRonError, type ErrorCode, type RonError } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { Egress, type EgressInit } from '../src/index.ts';
import { Authority, type KeyPair } from '../src/testing/index.ts';

export const HOST = 'origin.test';
const authority = new Authority();
process.on('exit', () => authority[Symbol.dispose]());
export const ca = authority.pem;
export const issue = authority.issue.bind(authority);
export const selfSigned = authority.selfSigned.bind(authority);
const good = issue({ names: `DNS:${HOST},IP:127.0.0.1` });

export interface Hostile extends AsyncDisposable {
  readonly port: number;
  readonly url: string;
  /** Connections accepted. */
  readonly accepted: () => number;
  /** Requests whose header section arrived, as text. */
  readonly requests: string[];
  /** Bytes that clients sent, before TLS. */
  readonly wire_bytes: () => number;
  readonly open: () => number;
}

/** TCP connections by the port of the client. */
const rawByPort = new Map<number, Socket>();

/** Ends a connection with a TCP reset, below TLS. */
export const reset = (socket: Socket): unknown => rawByPort.get(socket.remotePort!)?.resetAndDestroy();

/** Called with each request: `head` is its header section. `count` counts requests of the connection, from 1. */
export type Script = (socket: Socket, head: string, count: number) => void;

export interface HostileInit {
  /** Default: a valid certificate. `none` accepts TCP and says nothing; `plain` speaks without TLS. */
  readonly tls?: KeyPair | 'none' | 'plain';
  readonly port?: number;
  /** Default 127.0.0.1. */
  readonly host?: string;
  readonly onConnection?: (socket: Socket) => void;
}

export async function hostile(script: Script, init: HostileInit = {}): Promise<Hostile> {
  const sockets = new Set<Socket>();
  const requests: string[] = [];
  let accepted = 0;
  let wire_bytes = 0;
  const onSocket = (socket: Socket): void => {
    let text = '';
    let count = 0;
    init.onConnection?.(socket);
    socket.on('error', () => undefined);
    socket.on('data', (bytes: Buffer) => {
      text += bytes.toString('latin1');
      for (let end = text.indexOf('\r\n\r\n'); end >= 0; end = text.indexOf('\r\n\r\n')) {
        const head = text.slice(0, end);
        const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
        if (text.length < end + 4 + length) return;
        text = text.slice(end + 4 + length);
        requests.push(head);
        script(socket, head, ++count);
      }
    });
  };
  const tls = init.tls ?? good;
  const server: Server =
    tls === 'none' || tls === 'plain'
      ? createTcpServer(tls === 'plain' ? onSocket : (socket) => void socket.resume())
      : createTlsServer({ ...tls }, onSocket);
  server.on('tlsClientError', () => undefined);
  server.on('connection', (socket: Socket) => {
    accepted++;
    sockets.add(socket);
    const port = socket.remotePort!;
    rawByPort.set(port, socket);
    socket.on('error', () => undefined);
    socket.on('close', () => {
      wire_bytes += socket.bytesRead;
      rawByPort.delete(port);
      sockets.delete(socket);
    });
  });
  server.listen(init.port ?? 0, init.host ?? '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    port,
    url: `${tls === 'plain' ? 'http' : 'https'}://${HOST}:${port}/`,
    accepted: () => accepted,
    requests,
    wire_bytes: () => wire_bytes + [...sockets].reduce((sum, socket) => sum + socket.bytesRead, 0),
    open: () => sockets.size,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

/** Long deadlines, so that only the stage under test can expire even on a loaded machine. */
const LONG = { dns_ms: 60_000, connect_ms: 60_000, tls_ms: 60_000, first_byte_ms: 60_000, idle_ms: 60_000 };

export function clientOf(server: { readonly port: number }, init: Partial<EgressInit> = {}): Egress {
  return new Egress({
    name: 'test',
    ports: [server.port],
    networks: ['127.0.0.0/8'],
    ca: { pem: ca, mode: 'only' },
    lookup: () => Promise.resolve(['127.0.0.1']),
    ...init,
    limits: { ...LONG, total_ms: 90_000, ...init.limits },
  });
}

export const never = (): Deadline => Deadline.after('test', 100_000);

export const get = (egress: Egress, url: string): ReturnType<Egress['whole']> =>
  egress.whole({ url }, { deadline: never() });

export const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString('latin1');

/** An answer with a right Content-Length. */
export const ok = (body = 'hello', ...headers: string[]): string =>
  ['HTTP/1.1 200 OK', `content-length: ${body.length}`, ...headers, '', body].join('\r\n');

export async function refused(work: Promise<unknown>, code: ErrorCode, detail?: string): Promise<RonError> {
  const error = await work.then(
    (value) => assert.fail(`expected ${code}, got ${JSON.stringify(value)}`),
    (thrown: unknown) => thrown,
  );
  assert.ok(isRonError(error), String(error));
  assert.equal(error.code, code, `${error.message} ${String(error.cause)}`);
  if (detail !== undefined) assert.equal(error.op === detail ? error.op : error.details?.['reason'], detail);
  return error;
}

export const until = (condition: () => boolean): Promise<void> => eventually(String(condition), condition);

/** Every connection of the client came to its end, and none is counted as in use. */
export const quiet = (egress: Egress): Promise<void> =>
  until(() => egress.connections.used === 0 && egress.connections.waiting === 0);
