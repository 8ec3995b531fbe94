/**
 * Checks of the answers of mailbox.
 *
 * Contract: a malformed answer, or a payload that differs from its `b3`, throws `integrity`.
 * Bound: `RECEIVE_BATCH`, checked while the answer is read. Cancellation: by the signal of the request.
 */
import { RonError } from '@ron/kernel/core';
import {
  BATCH_MEDIA_TYPE,
  BatchDecoder,
  BatchError,
  isAddress,
  isUlid,
  RECEIVE_BATCH,
  type BatchItem,
  type OutgoingMessage,
  type PeekedMessage,
  type ReceivedMessage,
  type SendResult,
  type TokenResult,
} from '@ron/proto';
import type { Answer } from './answer.ts';
import { chunksOf } from './body.ts';
import { addressOf } from './object-hasher.ts';

const wrong = (problem: string, op: string): RonError =>
  new RonError('integrity', `mailbox sent a wrong answer: ${problem}`, { op });

export async function readReceived(answer: Answer, op: string): Promise<readonly ReceivedMessage[]> {
  const messages = await readPeeked(answer, op);
  if (!messages.every((message) => 'token' in message && typeof message.token === 'string'))
    throw wrong('a message has no token', op);
  return messages as readonly ReceivedMessage[];
}

export async function readPeeked(answer: Answer, op: string): Promise<readonly PeekedMessage[]> {
  if (answer.headers.get('content-type') !== BATCH_MEDIA_TYPE || answer.body === null)
    throw wrong('it is not a batch', op);
  const decoder = new BatchDecoder(RECEIVE_BATCH);
  const messages: PeekedMessage[] = [];
  try {
    for await (const piece of chunksOf(answer.body))
      for (const item of decoder.push(piece)) messages.push(verified(item, op));
    decoder.end();
  } catch (error) {
    throw error instanceof BatchError ? wrong(error.message, op) : error;
  }
  return messages;
}

function verified({ head, payload }: BatchItem, op: string): PeekedMessage {
  const message = { ...head, payload } as PeekedMessage;
  const { id, seq, delivery, attempts, sent_ms, b3 } = message;
  const isWhole =
    isUlid(id) && isAddress(b3) && [seq, delivery, attempts, sent_ms].every(isCount) && isTexts(message.headers);
  const { key, replay_of } = message;
  if (!isWhole || !isOptionalText(key) || !isOptionalText(replay_of)) throw wrong('a head lacks a field', op);
  if (addressOf(payload) !== b3) throw wrong(`the payload of ${id} is not the one that was stored`, op);
  return message;
}

const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;
const isOptionalText = (value: unknown): boolean => value === undefined || typeof value === 'string';

function isTexts(value: unknown): boolean {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  return Object.values(value).every((each) => typeof each === 'string');
}

/** Each stored message must have the hash of the payload that was sent. */
export function requireSendResults(answer: unknown, sent: readonly OutgoingMessage[]): readonly SendResult[] {
  const results = resultsOf(answer, sent.length, 'send') as readonly SendResult[];
  for (const [index, result] of results.entries()) {
    if (typeof result !== 'object' || result === null) throw wrong('a result is not an object', 'send');
    if ('error' in result) continue;
    const isWhole = isUlid(result.id) && isCount(result.seq) && typeof result.duplicate === 'boolean';
    if (!isWhole) throw wrong('a result lacks a field', 'send');
    if (result.b3 !== addressOf(sent[index]!.payload))
      throw wrong(`the payload of ${result.id} is not the one that was sent`, 'send');
  }
  return results;
}

export function requireTokenResults(answer: unknown, count: number, op: string): readonly TokenResult[] {
  const results = resultsOf(answer, count, op) as readonly TokenResult[];
  if (!results.every((result) => result === 'ok' || result === 'stale' || result === 'unknown'))
    throw wrong('a result is unknown', op);
  return results;
}

function resultsOf(answer: unknown, count: number, op: string): readonly unknown[] {
  const results = (answer as { results?: unknown } | null)?.results;
  if (!Array.isArray(results) || results.length !== count) throw wrong(`it has not ${count} results`, op);
  return results;
}
