/**
 * Sends one request on a connection of the agent and reads the header section of its answer.
 *
 * Contract: the answer is returned as the server sent it; redirects are not followed. No cookie is kept. Interim
 * answers (1xx) are dropped, an upgrade is refused. The parser is strict.
 * Bound: `header_bytes_max`, `informational_max`; the final header section must be complete `first_byte_ms` after the
 * connection is there (`timeout`, op `egress_first_byte`). Cancellation: by `total`; the connection is then closed.
 *
 *   const answer = await send({ agent, target, request, headers, total, limits, peerOf, onClosed });
 *   answer.status;
 */
import {
  request as httpRequest,
  type ClientRequest,
  type IncomingMessage,
  type RequestOptions,
} from '@ron/kernel/http';
import type { Socket } from 'node:net';
import { isRonError, onAbort, RonError, sched, type Deadline } from '@ron/kernel/core';
import type { Target } from '../address/target.ts';
import type { DialOptions, EgressAgent } from '../connect/agent.ts';
import type { Peer } from '../connect/dial.ts';
import type { EgressLimits } from '../limits.ts';
import { AnswerBody } from './body.ts';
import { badAnswer, judgeWire } from './errors.ts';
import { framingOf } from './framing.ts';
import type { EgressRequest } from './request.ts';

export interface Answer {
  readonly status: number;
  /** Lower-case names; repeated headers one by one. */
  readonly headers: Readonly<Record<string, readonly string[] | undefined>>;
  readonly body: AnswerBody;
  readonly peer: Peer;
}

export interface SendInit {
  readonly agent: EgressAgent;
  readonly target: Target;
  readonly request: EgressRequest;
  readonly headers: Readonly<Record<string, string>>;
  readonly total: Deadline;
  readonly limits: EgressLimits;
  readonly peerOf: (socket: object) => Peer | undefined;
  /** Called once, when the connection is free again or closed. */
  readonly onClosed: () => void;
}

/** The server closed a kept connection before it saw the request: a fresh connection may be tried. */
export class StaleConnection extends RonError {}

export async function send(init: SendInit): Promise<Answer> {
  const { agent, target, request, total, limits, onClosed } = init;
  const parked = sched.park<Answer>('egress_answer');
  await agent.readIdle(target.origin);
  const req = start(init);
  // Bounded by `maxHeaderSize`. Node's own count drops headers silently, and framing must see all of them.
  req.maxHeadersCount = 0;
  let stage: Deadline | undefined;
  let registration: Disposable | undefined;
  let interim = 0;
  const fail = (error: unknown): void => {
    parked.fail(isStale(req, error) ? stale(error) : judgeWire(error));
    req.destroy();
  };
  req.once('close', onClosed);
  req.on('error', fail);
  req.once('socket', (socket) => {
    closeOnExcess(req, socket);
    stage = total.child('egress_first_byte', limits.first_byte_ms);
    registration = onAbort(stage.signal, fail);
  });
  req.on('information', () => {
    if (++interim > limits.informational_max) fail(badAnswer('interim', 'the server sends interim answers only'));
  });
  req.once('upgrade', (_res, socket) => {
    socket.destroy();
    fail(badAnswer('upgrade', 'the server switched protocols without a request for it'));
  });
  req.once('response', (res) => {
    try {
      parked.wake(answerOf(init, req, res));
    } catch (error) {
      fail(error);
    }
  });
  req.end(request.body);
  try {
    return await parked.promise;
  } finally {
    registration?.[Symbol.dispose]();
    stage?.[Symbol.dispose]();
  }
}

/** Closes the connection when bytes follow the complete answer before the connection is idle: its reader may be slow. */
function closeOnExcess(req: ClientRequest, socket: Socket): void {
  let isComplete = false;
  const onData = (): void => {
    if (isComplete) socket.destroy();
    // Runs after the parser has read the same bytes.
    isComplete = (req as { res?: IncomingMessage | null }).res?.complete === true;
  };
  socket.on('data', onData);
  req.once('close', () => socket.off('data', onData));
}

/** Throws `validation` for headers that `node:http` refuses; then no connection is used. */
function start(init: SendInit): ClientRequest {
  try {
    return httpRequest(optionsOf(init));
  } catch (cause) {
    init.onClosed();
    throw new RonError('validation', 'a header of the request is not valid', { cause });
  }
}

function optionsOf({ agent, target, request, headers, total, limits }: SendInit): RequestOptions {
  const options: DialOptions & RequestOptions = {
    agent,
    target,
    total,
    method: request.method ?? 'GET',
    path: target.path,
    headers: { ...headers, host: target.host },
    setHost: false,
    maxHeaderSize: limits.header_bytes_max,
    httpValidation: 'strict',
  };
  return options;
}

function answerOf(init: SendInit, req: ClientRequest, res: IncomingMessage): Answer {
  const { request, total, limits, peerOf } = init;
  const status = res.statusCode ?? 0;
  if (res.httpVersion !== '1.1' && res.httpVersion !== '1.0')
    throw badAnswer('version', 'the answer is of another HTTP version');
  if (status < 200 || status > 599) throw badAnswer('status', 'the status of the answer is not valid');
  const framing = framingOf(req.method, status, res.rawHeaders);
  const bytes_max = Math.min(request.bytes_max ?? limits.body_bytes_max, limits.body_bytes_max);
  const body = new AnswerBody({ req, res, framing, total, limits, bytes_max, decode: request.decode ?? false });
  const peer = peerOf(res.socket);
  if (peer === undefined) throw new RonError('internal', 'the answer came over a connection that was not dialled here');
  return { status, headers: res.headersDistinct, body, peer };
}

function isStale(req: ClientRequest, error: unknown): boolean {
  return req.reusedSocket && !isRonError(error) && !(req as { res?: unknown }).res && !isParseError(error);
}

const isParseError = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && String(error.code).startsWith('HPE_');

const stale = (cause: unknown): StaleConnection =>
  new StaleConnection('unreachable', 'the server had closed the kept connection', { op: 'egress_answer', cause });
