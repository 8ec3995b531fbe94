/**
 * Answers with messages: framed, or JSON with payloads in base64.
 *
 * Contract: framed payloads are sent without a copy unless they are small. A large JSON answer is encoded piece by piece while
 * it is sent, so that no turn of the event loop encodes more than one message beyond `PIECE_BYTES`.
 * Bound: the given messages, and one piece.
 */
import { data, stream, text, type RouteAnswer } from '@ron/ingress';
import { BATCH_MEDIA_TYPE, encodeBatch, type PeekedMessage } from '@ron/proto';

/** Payload bytes of one piece of a JSON answer. */
const PIECE_BYTES = 256 * 1024;
const JSON_TYPE = 'application/json; charset=utf-8';
const HEADERS = { 'Cache-Control': 'no-store', Vary: 'Accept' } as const;

export function messagesAnswer(messages: readonly PeekedMessage[], asBatch: boolean): RouteAnswer {
  if (asBatch) return data(200, BATCH_MEDIA_TYPE, encodeBatch(messages.map(itemOf)), HEADERS);
  const bytes = messages.reduce((sum, { payload }) => sum + payload.length, 0);
  if (bytes > PIECE_BYTES) return stream(200, JSON_TYPE, jsonPieces(messages), HEADERS);
  return text(200, JSON_TYPE, `{"messages":[${messages.map(jsonOf).join(',')}]}`, HEADERS);
}

const itemOf = ({ payload, ...head }: PeekedMessage): { head: object; payload: Uint8Array } => ({ head, payload });

async function* jsonPieces(messages: readonly PeekedMessage[]): AsyncGenerator<string, void, void> {
  let piece = '{"messages":[';
  let piece_bytes = 0;
  for (const [index, message] of messages.entries()) {
    piece += (index === 0 ? '' : ',') + jsonOf(message);
    piece_bytes += message.payload.length;
    if (piece_bytes < PIECE_BYTES) continue;
    yield piece;
    piece = '';
    piece_bytes = 0;
  }
  yield `${piece}]}`;
}

/** The payload is appended to the text of the head: base64 needs no escapes. */
function jsonOf(message: PeekedMessage): string {
  const { head, payload } = itemOf(message);
  const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength);
  return `${JSON.stringify(head).slice(0, -1)},"payload":"${bytes.toString('base64')}"}`;
}
