/**
 * Processes one request per connection at a time: pipelined requests wait until all earlier answers are sent.
 *
 * Contract: a request starts when no earlier request of its connection is unanswered. Until then it holds no in-flight
 * permit and no budget, and no read or header time is charged to it. Answers are sent in the order of the requests. When
 * the connection closes, the waiting requests are dropped.
 * A connection that pipelines starts at most one request per event loop iteration, and its address as many as
 * `FairScheduler` allows. Requests behind the first usually wait unparsed in `PacketReader`, which takes over every
 * connection that pipelines or takes part in a flood.
 * Bound: `pipelined_max` waiting requests per connection.
 * Overflow: the next request is refused, and the connection closes after the earlier answers.
 *
 *   sequencer.schedule(req, res, connection, (req, res, connection) => answer(res));
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { RonError } from '@ron/kernel';
import type { Connection, Waiting } from './connection.ts';
import { newHeaderView, scanHeaders } from '../guards/header-scan.ts';
import { onSocketAssigned, waitsForSocket } from './node-internals.ts';
import { PacketReader } from './packet-reader.ts';
import type { FairScheduler } from './fair-scheduler.ts';

/** From this number of waiting requests of one address on, its further requests are not parsed before the next iteration. */
const FLOOD_MIN = 64;

/** Processes a request. It must not throw. */
export type Begin = (req: IncomingMessage, res: ServerResponse, connection: Connection) => void;

export interface RequestSequencerInit {
  readonly pipelined_max: number;
  readonly scheduler: FairScheduler;
  /** Answers a request that will not start. */
  readonly refuse: (req: IncomingMessage, res: ServerResponse, error: RonError) => void;
}

export class RequestSequencer {
  readonly #init: RequestSequencerInit;
  readonly #view = newHeaderView();
  readonly #too_many: RonError;

  constructor(init: RequestSequencerInit) {
    this.#init = init;
    this.#too_many = new RonError(
      'inflight_limit',
      `more than ${init.pipelined_max} requests are pipelined on one connection`,
    );
  }

  /** Calls `begin` now, or once the request may start. */
  schedule(req: IncomingMessage, res: ServerResponse, connection: Connection, begin: Begin): void {
    const { scheduler, pipelined_max } = this.#init;
    const { reader, share, waiting } = connection;
    const waits = waitsForSocket(res);
    connection.pipelines = waits || connection.pipelined > 0;
    const before = waits ? waiting.length : connection.pipelined - 1;
    if (before >= pipelined_max) return this.#init.refuse(req, res, this.#too_many);
    // A `PacketReader` was scheduled before it parsed the request.
    // [storage I-2] A request starts only when the answer before it is out, so one answer is written at a time.
    if (!waits && (reader !== undefined || scheduler.tryStart(share))) {
      reader?.arrived(res);
      return begin(req, res, connection);
    }
    scanHeaders(req.rawHeaders, this.#view);
    // Node drops the rest of the packet, which may be half a request.
    if (this.#view.upgrade) connection.lastRequest();
    const mine: Waiting = { req, res, broken: undefined };
    waiting.push(mine);
    // From now on its requests are parsed one at a time. That costs more than Node's own reading, so it is not done for a client that is merely busy.
    if (!connection.closing && (waits || share.waiting.length >= FLOOD_MIN))
      PacketReader.takeOver(connection, scheduler).arrived(res);
    // All other connections are served first, so that one packet full of requests does not block the event loop.
    // Meanwhile the request before this one releases its permit.
    const defer = (): void => scheduler.defer(share, () => this.#begin(mine, connection, begin));
    if (waits) onSocketAssigned(res, defer);
    else defer();
  }

  #begin(mine: Waiting, connection: Connection, begin: Begin): void {
    // The connection has closed since, or an earlier answer was its last.
    if (connection.waiting[0] !== mine) return;
    connection.waiting.shift();
    if (mine.broken === undefined) begin(mine.req, mine.res, connection);
    else this.#init.refuse(mine.req, mine.res, mine.broken);
    connection.closeIfDone();
  }
}
