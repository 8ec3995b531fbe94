/** Messages as text, for a person or a pipe, and as JSON. */
import type { PeekedMessage, ReceivedMessage } from '@ron/proto';
import { columns } from '../format.ts';
import { dateOf } from '../names/show-name.ts';
import { printable } from '../printable.ts';

/** A peeked message has no token. */
export type ShownMessage = PeekedMessage & Partial<Pick<ReceivedMessage, 'token'>>;

/** The payload as text; undefined if it is not UTF-8. */
export function textOf(payload: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(payload);
  } catch {
    return undefined;
  }
}

/** The facts of a message, an empty line, and its payload. */
export function messageText(message: ShownMessage): string {
  const { id, seq, token, attempts, delivery, sent_ms, key, headers, replay_of, payload, b3 } = message;
  const rows: [string, string][] = [
    ['id', `${id}, seq ${seq}`],
    ...(token === undefined ? [] : [['token', token] satisfies [string, string]]),
    ['sent', `${dateOf(sent_ms / 1000)}, attempt ${attempts}, delivery ${delivery}`],
    ...(key === undefined ? [] : [['key', key] satisfies [string, string]]),
    ...Object.entries(headers).map(([name, value]): [string, string] => ['header', `${name}: ${value}`]),
    ...(replay_of === undefined ? [] : [['replay of', replay_of] satisfies [string, string]]),
    ['payload', `${payload.length} bytes, ${b3}`],
  ];
  const text = textOf(payload);
  const body = text ?? '(not text: use --raw, --out or --json)';
  return `${columns(rows)}\n\n${body.replace(/\n$/, '')}\n`;
}

/** `text` is present if the payload is UTF-8. */
export function messageJson(message: ShownMessage): object {
  const text = textOf(message.payload);
  return {
    ...message,
    payload: Buffer.from(message.payload).toString('base64'),
    ...(text !== undefined && { text }),
  };
}

/** The bytes for standard output: as they are, or escaped for a terminal. */
export function rawBytes(payload: Uint8Array, isTerminal: boolean): Uint8Array {
  return isTerminal ? Buffer.from(printable(Buffer.from(payload).toString('utf8'))) : payload;
}
