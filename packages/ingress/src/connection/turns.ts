/**
 * One request per connection at a time: pipelined requests wait until the answers before them are out.
 *
 * Contract: a request begins when no earlier request of its connection is unanswered. Until then it holds no in-flight
 * place and no budget, and no read or header time is charged to it. Answers leave in the order of the requests. When the
 * connection closes, the waiting requests are dropped.
 * A connection that pipelines gets at most one request per pass of the event loop, and its address as many as `Passes`
 * allows. Mostly the requests behind the first wait unparsed in `PacketReader`, which is given every connection that
 * pipelines or takes part in a flood.
 * Bound: `pipelined_max` waiting requests per connection. Overflow: the next one is refused and the connection closes
 * after the answers before it.
 *
 *   turns.take(req, res, connection, (req, res, connection) => answer(res));
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { RonError } from '@ron/kernel';
import type { Connection, Waiting } from './connection.ts';
import { newHeaderView, scanHeaders } from '../guards/header-scan.ts';
import { onTurn, waitsForTurn } from './node-internals.ts';
import { PacketReader } from './packet-reader.ts';
import type { Passes } from './passes.ts';

/** Requests of one address that wait for a pass, from which on the next ones are not even parsed before it. */
const FLOOD_MIN = 64;

/** Processes a request. It must not throw. */
export type Begin = (req: IncomingMessage, res: ServerResponse, connection: Connection) => void;

export interface TurnsInit {
  readonly pipelined_max: number;
  readonly passes: Passes;
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
    const { passes, pipelined_max } = this.#init;
    const { reader, share, waiting } = connection;
    const waits = waitsForTurn(res);
    connection.pipelines = waits || connection.pipelined > 0;
    const before = waits ? waiting.length : connection.pipelined - 1;
    if (before >= pipelined_max) return this.#init.refuse(req, res, this.#too_many);
    // A reader has asked for the turn before the request was parsed.
    // [storage I-2] A request begins only when the answer before it is out, so one answer is written at a time.
    if (!waits && (reader !== undefined || passes.tryBegin(share))) {
      reader?.arrived(res);
      return begin(req, res, connection);
    }
    scanHeaders(req.rawHeaders, this.#view);
    // Node drops the rest of the packet, which may be half a request.
    if (this.#view.upgrade) connection.lastRequest();
    const mine: Waiting = { req, res, broken: undefined };
    waiting.push(mine);
    // From now on its requests are parsed one at a time. That costs more than reading by Node: not for a busy client.
    if (!connection.closing && (waits || share.waiting.length >= FLOOD_MIN))
      PacketReader.takeOver(connection, passes).arrived(res);
    // All other connections come first, so that one packet full of requests does not hold up the loop. Meanwhile the
    // request before this one releases its place.
    const later = (): void => passes.later(share, () => this.#begin(mine, connection, begin));
    if (waits) onTurn(res, later);
    else later();
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
