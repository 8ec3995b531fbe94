/**
 * An answer of unknown length that a handler produces item by item: lists as ndjson, exports, logs.
 *
 * Contract: the head is sent with the first item, so a source that fails before that becomes a problem answer. Each item
 * is flushed at once, and the next one is pulled only after the kernel has accepted the last: a slow client slows the
 * source down. A source that fails later destroys the connection, so that the client detects the truncation. The
 * budget of the
 * request ends with the first item; from there on the sweeper cuts a client that stops reading. The answer holds its
 * in-flight permit until its end.
 * Bound: one item. Cancellation: `gone` of the request; the source must observe it to end early.
 *
 *   handler: (context) => stream(200, 'application/x-ndjson', lines(context.gone)),
 */
import { sched } from '@ron/kernel';
import type { Exchange } from '../request/exchange.ts';
import type { Responder } from './responder.ts';
import type { AnswerHeaders } from '../table/routes.ts';
import { ItemSource, written } from './streamed-item.ts';

export interface StreamedAnswer {
  readonly kind: 'stream';
  readonly status: number;
  readonly media_type: string;
  readonly items: AsyncIterable<string | Uint8Array>;
  readonly headers?: AnswerHeaders;
}

/** After this many items the stream yields to the event loop, however fast source and client are. */
const TURN_ITEMS = 256;

/** Rejects when the source fails or the request ends early; the caller then answers or cuts the connection. */
export async function sendStream(exchange: Exchange, answer: StreamedAnswer, responder: Responder): Promise<void> {
  const { res, corr_id } = exchange;
  const { status, media_type, headers } = answer;
  const signal = exchange.goneOrLate();
  const source = new ItemSource(answer.items);
  let ended = false;
  try {
    if (exchange.method === 'HEAD') {
      exchange.answerBegan();
      responder.streamHead(res, status, media_type, corr_id, headers);
      res.end();
      return;
    }
    let item = await source.next(signal);
    exchange.answerBegan();
    responder.streamHead(res, status, media_type, corr_id, headers);
    for (let count = 1; item.done !== true; count += 1) {
      // An empty item would send nothing.
      if (item.value.length > 0) await written(res, item.value, signal);
      if (count % TURN_ITEMS === 0) await sched.pause('stream');
      item = await source.next(signal);
    }
    ended = true;
    res.end();
  } finally {
    if (!ended) exchange.runsUntil(source.ended());
  }
}
