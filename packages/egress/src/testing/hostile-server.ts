/** A hostile HTTPS server on loopback: tests decide about every byte that it sends. */
import { once } from 'node:events';
import { createServer as createTcpServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import type { KeyPair } from './authority.ts';

/** The name under which tests reach the server. */
export const HOST = 'origin.test';

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
  /** `none` accepts TCP and says nothing; `plain` speaks without TLS. */
  readonly tls: KeyPair | 'none' | 'plain';
  readonly port?: number;
  /** Default 127.0.0.1. */
  readonly host?: string;
  readonly onConnection?: (socket: Socket) => void;
}

export async function hostile(script: Script, init: HostileInit): Promise<Hostile> {
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
  const { tls } = init;
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

/** An answer with a right Content-Length. */
export const ok = (body = 'hello', ...headers: string[]): string =>
  ['HTTP/1.1 200 OK', `content-length: ${body.length}`, ...headers, '', body].join('\r\n');
