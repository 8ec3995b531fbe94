/**
 * One listening socket with every limit set, and the events around its connections.
 *
 * Promise: a connection is refused or accepted before a byte of it is read; a request that the parser
 * refuses gets a problem answer and is counted; every limit of Node that has a counterpart in `limits.ts` is set by it. Once
 * `answerPlainly` was called (not over TLS) connections begin with the plain front, which gives them to Node's parser at
 * the first packet that is not for it.
 * Bound: connections by the gatekeeper, headers and time by the options below.
 * Cancellation: `stop()` ends listening; connections are the owner's business.
 */
import type { IncomingMessage, RequestListener, Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { RonError, sched } from '@ron/kernel';
import { peerOf } from '../connection/accept.ts';
import type { Gatekeeper } from '../connection/accept.ts';
import { urlOf } from './bind.ts';
import type { BindTarget } from './bind.ts';
import { Connection } from '../connection/connection.ts';
import type { ConnectionOwner, Ticket } from '../connection/connection.ts';
import { createHttpServer } from './http-server.ts';
import type { IngressMetrics } from '../ingress-metrics.ts';
import type { IngressConfig } from '../limits.ts';
import { listening } from './listen.ts';
import {
  answerStarted,
  keepDrainEvents,
  socketBelow,
  stopListening,
  takeParserListener,
} from '../connection/node-internals.ts';
import { HEADERS_LATE, parserRefusal } from '../connection/parser-errors.ts';
import type { Passes } from '../connection/passes.ts';
import type { PlainFront } from '../fast/plain-front.ts';
import { answerRaw } from '../answer/raw-answer.ts';
import type { Responder } from '../answer/responder.ts';
import type { Sweeper } from '../connection/sweeper.ts';
import type { TlsMaterial } from './tls.ts';
import { prepareSocketPath, restrictSocket } from './unix-socket.ts';

export interface ListenerInit {
  readonly config: IngressConfig;
  readonly tls: TlsMaterial | undefined;
  readonly gatekeeper: Gatekeeper;
  readonly sweeper: Sweeper;
  readonly passes: Passes;
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
  #plain: PlainFront | undefined;
  #kind: BindTarget['kind'] = 'tcp';
  #url: string | undefined;

  constructor(init: ListenerInit) {
    this.#init = init;
    this.server = createHttpServer(init.config, init.tls);
    const { server } = this;
    // Node's own listener attaches the parser. Ours comes first: the first request must find the record of its connection.
    this.#attachParser = takeParserListener(server);
    server.on('connection', (socket: Socket) => this.#onConnection(socket));
    if (init.tls !== undefined) server.prependListener('secureConnection', (socket: Socket) => this.#onSecure(socket));
    server.on('clientError', (error: Error, socket: Socket) => this.#onClientError(error, socket));
    server.on('request', init.handle);
    server.on('checkContinue', init.handleContinue);
    server.on('checkExpectation', init.handleExpectation);
    server.on('connect', (_req: IncomingMessage, socket: Socket) => this.#onConnect(socket));
    // A failed accept (no file descriptors left) must not end the process; the next one may work.
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
      await listening(this.server, from ?? { host: target.host, port: target.port, backlog });
      this.#url = urlOf(target.host, (this.server.address() as AddressInfo).port, this.#init.tls !== undefined);
    }
    return this.#url;
  }

  /** From now on plain requests for bytes in RAM are answered without a parser. Not over TLS. */
  answerPlainly(front: PlainFront): void {
    if (this.#init.tls === undefined) this.#plain = front;
  }

  get url(): string {
    if (this.#url === undefined) throw new RonError('internal', 'the listener does not listen yet');
    return this.#url;
  }

  /** Accepts no more connections. Open ones stay open, also those whose first request is still on its way. */
  stop(): void {
    stopListening(this.server);
  }

  /** Stops Node's own connection checks and cuts TLS handshakes. All other connections must be closed. */
  dispose(): void {
    for (const socket of this.#handshaking.keys()) socket.destroy();
    this.server.close();
  }

  #onConnection(socket: Socket): void {
    // For its whole life: Node removes its own listener at CONNECT, and an error without a listener ends the process.
    socket.on('error', ignore);
    const { gatekeeper, responder, metrics, tls } = this.#init;
    const ip = peerOf(socket, this.#kind);
    if (ip === undefined) {
      socket.destroy();
      return;
    }
    const ticket = gatekeeper.admit(ip);
    if (ticket instanceof RonError) {
      metrics.countRefusal(ticket);
      if (tls === undefined) answerRaw(socket, ticket, responder.common);
      else socket.destroy();
      this.#attachParser(socket);
      return;
    }
    socket.once('close', () => gatekeeper.release(ticket));
    if (tls === undefined) return this.#begin(this.#open(socket, ticket));
    this.#handshaking.set(socket, ticket);
    socket.once('close', () => this.#handshaking.delete(socket));
    this.#attachParser(socket);
  }

  #begin(connection: Connection): void {
    if (this.#plain === undefined) return this.#attachParser(connection.socket);
    this.#plain.take(connection, this.#attachParser);
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
    const { passes, sweeper } = this.#init;
    const connection = new Connection(socket, ticket, sched.now_ms(), this, passes.shareOf(ticket.address));
    sweeper.open(connection);
    socket.once('close', () => {
      sweeper.closed(connection);
      connection.waiting.length = 0;
      for (const flight of connection.flights.splice(0)) flight.connectionLost();
    });
    return connection;
  }

  #onClientError(error: Error & { code?: string }, socket: Socket): void {
    const connection = Connection.of(socket);
    if (connection === undefined) {
      // Over TLS: the handshake failed or took too long. Else it was refused when it was accepted, which was answered.
      if (this.#init.tls !== undefined) socket.destroy();
      return;
    }
    if (connection.closing) return;
    // The client said that this was its last request and sent more: the answer in flight still goes out, then it closes.
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

  /** An answer now would be taken for that of a request before it: those in flight are answered, then it closes. */
  #refuseInTurn(connection: Connection, refusal: RonError): void {
    const newest = connection.waiting.at(-1);
    const current = connection.flights.at(-1);
    if (newest !== undefined && !newest.req.complete) newest.broken = refusal;
    else if (newest !== undefined || current?.bodyBroken(refusal) === false) this.#count(refusal);
    // An error behind pipelined requests ends the connection, whether it came while they were answered or after.
    else if (current === undefined && connection.pipelined > 0) this.#count(refusal);
    if (newest === undefined && current === undefined && connection.pipelined === 0)
      this.#refuseRaw(connection, refusal);
    else connection.closeAfterFlights(false);
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
    // The answer before it has been written as a whole, but is not out yet: it goes out, then it closes.
    if (socket.writableLength > 0 || answerStarted(socket)) {
      sweeper.watch(connection);
      connection.closeAfterFlights(false);
      return;
    }
    connection.refused();
    answerRaw(socket, refusal, responder.common);
  }
}

const NO_TUNNELS = new RonError('method_not_allowed', 'CONNECT is not spoken here');

/** The socket is destroyed by then; its `close` event releases everything. */
function ignore(): void {}
