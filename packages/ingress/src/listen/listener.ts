/**
 * One listening socket with every limit set, and the events of its connections.
 *
 * Contract: a connection is refused or accepted before a byte of it is read. A request that the parser refuses gets a
 * problem answer and is counted. Every limit of Node that has a counterpart in `limits.ts` is set from it. Once
 * `useSocketFastPath` was called (not over TLS), connections begin with the socket fast path, which hands them to Node's
 * parser at the first packet that it cannot answer.
 * Bound: connections by `ConnectionLimiter`, headers and time by the options below.
 * Cancellation: `stop()` stops listening; the owner closes the connections.
 */
import type { IncomingMessage, RequestListener, Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { RonError, sched } from '@ron/kernel';
import { peerOf } from '../connection/connection-limiter.ts';
import type { ConnectionLimiter } from '../connection/connection-limiter.ts';
import { urlOf } from './bind.ts';
import type { BindTarget } from './bind.ts';
import { Connection } from '../connection/connection.ts';
import type { ConnectionOwner, Ticket } from '../connection/connection.ts';
import { createHttpServer } from './http-server.ts';
import type { IngressMetrics } from '../ingress-metrics.ts';
import type { IngressConfig } from '../limits.ts';
import { listening, tcpOptions } from './listen.ts';
import {
  answerStarted,
  keepDrainEvents,
  socketBelow,
  stopListening,
  takeParserListener,
} from '../connection/node-internals.ts';
import { HEADERS_LATE, parserRefusal } from '../connection/parser-errors.ts';
import type { FairScheduler } from '../connection/fair-scheduler.ts';
import type { SocketFastPath } from '../fast/socket-fast-path.ts';
import { answerRaw } from '../answer/raw-answer.ts';
import type { Responder } from '../answer/responder.ts';
import type { Sweeper } from '../connection/sweeper.ts';
import type { TlsMaterial } from './tls.ts';
import { prepareSocketPath, restrictSocket } from './unix-socket.ts';

export interface ListenerInit {
  readonly config: IngressConfig;
  readonly tls: TlsMaterial | undefined;
  readonly limiter: ConnectionLimiter;
  readonly sweeper: Sweeper;
  readonly scheduler: FairScheduler;
  readonly responder: Responder;
  readonly metrics: IngressMetrics;
  readonly handle: RequestListener;
  readonly handleContinue: RequestListener;
  readonly handleExpectation: RequestListener;
  readonly onServerError: (error: Error) => void;
}

export class Listener implements ConnectionOwner {
  readonly server: Server;
  readonly #init: ListenerInit;
  /** Tickets of connections whose TLS handshake is not done. Empty without TLS. */
  readonly #handshaking = new Map<Socket, Ticket>();
  readonly #attachParser: (socket: Socket) => void;
  #fast_path: SocketFastPath | undefined;
  #kind: BindTarget['kind'] = 'tcp';
  #url: string | undefined;

  constructor(init: ListenerInit) {
    this.#init = init;
    this.server = createHttpServer(init.config, init.tls);
    const { server } = this;
    // Node's own listener attaches the parser. The record of the connection must exist before its first request.
    this.#attachParser = takeParserListener(server);
    server.on('connection', (socket: Socket) => this.#onConnection(socket));
    if (init.tls !== undefined) server.prependListener('secureConnection', (socket: Socket) => this.#onSecure(socket));
    server.on('clientError', (error: Error, socket: Socket) => this.#onClientError(error, socket));
    server.on('request', init.handle);
    server.on('checkContinue', init.handleContinue);
    server.on('checkExpectation', init.handleExpectation);
    server.on('connect', (_req: IncomingMessage, socket: Socket) => this.#onConnect(socket));
    // A failed accept (no file descriptors left) must not end the process; the next one may succeed.
    server.on('error', (error: Error) => init.onServerError(error));
    // Without a listener for upgrades Node processes the request as an ordinary one.
  }

  /** `from`: a server at the same address whose listening socket is taken over. */
  async listen(target: BindTarget, from?: Server): Promise<string> {
    const { backlog } = this.#init.config;
    this.#kind = target.kind;
    if (target.kind === 'unix') {
      await prepareSocketPath(target.path);
      await listening(this.server, { path: target.path, backlog });
      await restrictSocket(target.path);
      this.#url = `unix:${target.path}`;
    } else {
      await listening(this.server, tcpOptions(target, backlog), from);
      this.#url = urlOf(target.host, (this.server.address() as AddressInfo).port, this.#init.tls !== undefined);
    }
    return this.#url;
  }

  /** From now on simple GETs for bytes in RAM are answered without a parser. No effect over TLS. */
  useSocketFastPath(fast_path: SocketFastPath): void {
    if (this.#init.tls === undefined) this.#fast_path = fast_path;
  }

  get url(): string {
    if (this.#url === undefined) throw new RonError('internal', 'the listener is not listening yet');
    return this.#url;
  }

  /** Accepts no more connections. Open ones stay open, even if their first request has not arrived. */
  stop(): void {
    stopListening(this.server);
  }

  /** Stops Node's own connection checks and cuts TLS handshakes. All other connections must be closed. */
  dispose(): void {
    for (const socket of this.#handshaking.keys()) socket.destroy();
    this.server.close();
  }

  #onConnection(socket: Socket): void {
    // For the lifetime of the socket: Node removes its own listener at CONNECT, and an error without a listener ends the process.
    socket.on('error', ignore);
    const { limiter, responder, metrics, tls } = this.#init;
    const ip = peerOf(socket, this.#kind);
    if (ip === undefined) {
      socket.destroy();
      return;
    }
    const ticket = limiter.admit(ip);
    if (ticket instanceof RonError) {
      metrics.countRefusal(ticket);
      if (tls === undefined) answerRaw(socket, ticket, responder.common);
      else socket.destroy();
      this.#attachParser(socket);
      return;
    }
    socket.once('close', () => limiter.release(ticket));
    if (tls === undefined) return this.#begin(this.#open(socket, ticket));
    this.#handshaking.set(socket, ticket);
    socket.once('close', () => this.#handshaking.delete(socket));
    this.#attachParser(socket);
  }

  #begin(connection: Connection): void {
    if (this.#fast_path === undefined) return this.#attachParser(connection.socket);
    this.#fast_path.take(connection, this.#attachParser);
  }

  headLate(connection: Connection): void {
    if (!connection.closing) this.#refuseRaw(connection, HEADERS_LATE);
  }

  #onSecure(socket: Socket): void {
    socket.on('error', ignore);
    const below = socketBelow(socket);
    const ticket = below === undefined ? undefined : this.#handshaking.get(below);
    if (below !== undefined) this.#handshaking.delete(below);
    if (ticket === undefined) socket.destroy();
    else this.#open(socket, ticket);
  }

  #open(socket: Socket, ticket: Ticket): Connection {
    const { scheduler, sweeper } = this.#init;
    const connection = new Connection(socket, ticket, sched.now_ms(), this, scheduler.shareOf(ticket.address));
    sweeper.open(connection);
    socket.once('close', () => {
      sweeper.closed(connection);
      connection.waiting.length = 0;
      for (const request of connection.inflight.splice(0)) request.connectionLost();
    });
    return connection;
  }

  #onClientError(error: Error & { code?: string }, socket: Socket): void {
    const connection = Connection.of(socket);
    if (connection === undefined) {
      // Over TLS: the handshake failed or took too long. Otherwise the connection was refused and answered when it was accepted.
      if (this.#init.tls !== undefined) socket.destroy();
      return;
    }
    if (connection.closing) return;
    // The client announced its last request and sent more: send the answer in flight, then close.
    if (error.code === 'HPE_CLOSED_CONNECTION' && !connection.idle) return;
    const refusal = parserRefusal(error);
    if (refusal === undefined) {
      socket.destroy();
      return;
    }
    this.#refuseInTurn(connection, refusal);
  }

  #onConnect(socket: Socket): void {
    const connection = Connection.of(socket);
    if (connection === undefined || connection.closing) return;
    keepDrainEvents(socket);
    this.#refuseInTurn(connection, NO_TUNNELS);
  }

  /** An answer now would be read as the answer to an earlier request: answer those in flight, then close. */
  #refuseInTurn(connection: Connection, refusal: RonError): void {
    const newest = connection.waiting.at(-1);
    const current = connection.inflight.at(-1);
    if (newest !== undefined && !newest.req.complete) newest.broken = refusal;
    else if (newest !== undefined || current?.bodyBroken(refusal) === false) this.#count(refusal);
    // An error behind pipelined requests ends the connection, whether it occurred before or after their answers.
    else if (current === undefined && connection.pipelined > 0) this.#count(refusal);
    if (newest === undefined && current === undefined && connection.pipelined === 0)
      this.#refuseRaw(connection, refusal);
    else connection.closeAfterInflight(false);
  }

  #count(refusal: RonError): void {
    const { metrics } = this.#init;
    metrics.countRefusal(refusal);
    if (refusal.code === 'request_timeout') metrics.io_timeouts.at('header').inc();
    metrics.none.count(refusal.status, 0);
  }

  #refuseRaw(connection: Connection, refusal: RonError): void {
    const { responder, sweeper } = this.#init;
    const { socket } = connection;
    this.#count(refusal);
    // The previous answer is written but not sent yet: send it, then close.
    if (socket.writableLength > 0 || answerStarted(socket)) {
      sweeper.watch(connection);
      connection.closeAfterInflight(false);
      return;
    }
    connection.refused();
    answerRaw(socket, refusal, responder.common);
  }
}

const NO_TUNNELS = new RonError('method_not_allowed', 'CONNECT is not supported');

/** The socket is destroyed by then; its `close` event releases everything. */
function ignore(): void {}
