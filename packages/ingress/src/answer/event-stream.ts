/**
 * Server-sent events: an answer that stays open and carries events as they happen.
 *
 * Contract: the head is sent at once, each event as soon as the client has read the last one. A quiet stream carries a
 * comment every `heartbeat_ms`, so that proxies keep it open and a dead client is detected. When a drain begins the stream ends
 * with a comment; the client reconnects elsewhere. A source that ends or fails ends the stream: the client reconnects and
 * names the last event that it has seen. It holds no in-flight permit but an event slot (`events_max`, half of
 * them for one address).
 * Bound: one event, one timer. Overflow: 429 `busy`. Cancellation: `gone` of the request; the source must observe it.
 *
 *   handler: (context) => events(changes(context.headers['last-event-id'], context.gone)),
 */
import type { ServerResponse } from 'node:http';
import { assert, RonError, sched } from '@ron/kernel';
import type { Timer } from '@ron/kernel';
import type { Exchange } from '../request/exchange.ts';
import type { Responder } from './responder.ts';
import type { AnswerHeaders } from '../table/routes.ts';
import type { SlotLimit } from '../guards/slot-limit.ts';
import { ItemSource, written } from './streamed-item.ts';

export interface ServerSentEvent {
  /** The name of the event. Default: none, which clients read as `message`. */
  readonly event?: string;
  readonly data: string;
  /** Sent back by a client that reconnects, as `Last-Event-ID`. */
  readonly id?: string;
  /** How long a client waits before it reconnects. */
  readonly retry_ms?: number;
}

export interface EventsAnswer {
  readonly kind: 'events';
  readonly items: AsyncIterable<ServerSentEvent>;
  readonly headers?: AnswerHeaders;
}

const HEARTBEAT = ':\n\n';
const DRAINING = ': the service is shutting down\n\n';

/** Rejects if no slot is free, if the source fails and if the client leaves. */
export async function sendEvents(
  exchange: Exchange,
  answer: EventsAnswer,
  responder: Responder,
  slots: SlotLimit,
  heartbeat_ms: number,
): Promise<void> {
  const { res, corr_id, permit } = exchange;
  const source = new ItemSource(answer.items);
  if (!slots.tryTake(permit.address)) {
    exchange.runsUntil(source.ended());
    throw new RonError('busy', 'too many event streams are open');
  }
  const heartbeat = new Heartbeat(res, heartbeat_ms);
  try {
    exchange.leavePlace();
    responder.streamHead(res, 200, 'text/event-stream', corr_id, { 'Cache-Control': 'no-store', ...answer.headers });
    res.flushHeaders();
    if (exchange.method !== 'HEAD') await pump(exchange, source, heartbeat);
    res.end();
  } finally {
    heartbeat.stop();
    slots.give(permit.address);
    exchange.runsUntil(source.ended());
  }
}

async function pump(exchange: Exchange, source: ItemSource<ServerSentEvent>, heartbeat: Heartbeat): Promise<void> {
  const { res, gone, draining } = exchange;
  const ends = AbortSignal.any([gone, draining]);
  try {
    for (;;) {
      const item = await source.next(ends);
      if (item.done === true) return;
      await written(res, eventText(item.value), ends);
      heartbeat.rest();
    }
  } catch (error) {
    if (gone.aborted || !draining.aborted) throw error;
    res.write(DRAINING);
    exchange.endSource(draining.reason);
  }
}

/** Writes a comment after a period without events. */
class Heartbeat {
  readonly #res: ServerResponse;
  readonly #period_ms: number;
  #timer: Timer | undefined;

  constructor(res: ServerResponse, period_ms: number) {
    this.#res = res;
    this.#period_ms = period_ms;
    this.rest();
  }

  rest(): void {
    this.#timer?.cancel();
    this.#timer = sched.timer(this.#period_ms, () => this.#beat(), 'events.heartbeat');
  }

  #beat(): void {
    // Nothing is added while the client has not read the last bytes: the sweeper watches it.
    if (this.#res.socket?.writableLength === 0) this.#res.write(HEARTBEAT);
    this.rest();
  }

  stop(): void {
    this.#timer?.cancel();
  }
}

const LINE_END = /\r\n|\r|\n/;

/** One event in wire format. A name or id with a line break is a defect of the source. */
function eventText({ event, data, id, retry_ms }: ServerSentEvent): string {
  let text = '';
  if (event !== undefined) text += `event: ${oneLine('event', event)}\n`;
  if (id !== undefined) text += `id: ${oneLine('id', id)}\n`;
  if (retry_ms !== undefined) text += `retry: ${Math.max(0, Math.round(retry_ms))}\n`;
  for (const line of data.split(LINE_END)) text += `data: ${line}\n`;
  return `${text}\n`;
}

function oneLine(field: string, value: string): string {
  assert(!LINE_END.test(value) && !value.includes('\0'), `the ${field} of an event is one line`);
  return value;
}
