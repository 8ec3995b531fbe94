/**
 * One request per connection at a time: pipelined requests wait until the answers before them are out.
 *
 * Contract: a request begins when no earlier request of its connection is unanswered. Until then it holds no in-flight
 * place and no budget, and no read or header time is charged to it. Answers leave in the order of the requests. When the
 * connection closes, the waiting requests are dropped.
 * A connection that pipelines gets one request per turn of the event loop.
 * Bound: `pipelined_max` waiting requests per connection. Overflow: the next one is refused and the connection closes
 * after the answers before it.
 *
 *   turns.take(req, res, connection, (req, res, connection) => answer(res));
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { RonError, sched } from '@ron/kernel';
import type { Connection, Waiting } from './connection.ts';
import { newHeaderView, scanHeaders } from './header-scan.ts';
import { onTurn, waitsForTurn } from './node-internals.ts';

/** Processes a request. It must not throw. */
export type Begin = (req: IncomingMessage, res: ServerResponse, connection: Connection) => void;

export interface TurnsInit {
  readonly pipelined_max: number;
  /** Answers a request that will not begin. */
  readonly refuse: (req: IncomingMessage, res: ServerResponse, error: RonError) => void;
}

export class Turns {
  readonly #init: TurnsInit;
  readonly #view = newHeaderView();
  readonly #too_many: RonError;

  constructor(init: TurnsInit) {
    this.#init = init;
    this.#too_many = new RonError(
      'inflight_limit',
      `more than ${init.pipelined_max} requests are pipelined on one connection`,
    );
  }

  /** Calls `begin` now, or when it is this request's turn. */
  take(req: IncomingMessage, res: ServerResponse, connection: Connection, begin: Begin): void {
    connection.pipelines = waitsForTurn(res);
    if (!connection.pipelines) return begin(req, res, connection);
    const { waiting } = connection;
    if (waiting.length >= this.#init.pipelined_max) return this.#init.refuse(req, res, this.#too_many);
    scanHeaders(req.rawHeaders, this.#view);
    // Node drops the rest of the packet, which may be half a request.
    if (this.#view.upgrade) connection.lastRequest();
    const mine: Waiting = { req, res, broken: undefined };
    waiting.push(mine);
    // All other connections come first, so that one packet full of requests does not hold up the loop. Meanwhile the
    // request before this one releases its place.
    onTurn(res, () => void sched.pause('ingress-turn').then(() => this.#begin(mine, connection, begin)));
  }

  #begin(mine: Waiting, connection: Connection, begin: Begin): void {
    // The connection closed meanwhile, or an earlier answer was the last.
    if (connection.waiting[0] !== mine) return;
    connection.waiting.shift();
    if (mine.broken === undefined) begin(mine.req, mine.res, connection);
    else this.#init.refuse(mine.req, mine.res, mine.broken);
    connection.closeIfDone();
  }
}
