/** JSON answers with messages: a large one is encoded in pieces while it is sent, a small one at once. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PeekedMessage } from '@ron/proto';
import { messagesAnswer } from './messages-answer.ts';

const KIB = 1024;

const messagesOf = (count: number, bytes: number): PeekedMessage[] =>
  Array.from({ length: count }, (_, index) => ({
    id: `id ${index}`,
    seq: index,
    delivery: 1,
    attempts: 1,
    sent_ms: 1,
    headers: {},
    b3: 'b3',
    payload: Buffer.alloc(bytes, index),
  }));

/** The payloads in the JSON text of an answer. */
const payloadsIn = (json: string): Buffer[] =>
  (JSON.parse(json) as { messages: { payload: string }[] }).messages.map(({ payload }) =>
    Buffer.from(payload, 'base64'),
  );

const payloadsOf = (messages: readonly PeekedMessage[]): Buffer[] =>
  messages.map(({ payload }) => Buffer.from(payload));

test('an answer of more than 256 KiB is encoded in pieces of about that size', async () => {
  const messages = messagesOf(10, 100 * KIB);
  const answer = messagesAnswer(messages, false);
  assert.ok(answer.kind === 'stream');
  const pieces: string[] = [];
  for await (const piece of answer.items as AsyncIterable<string>) pieces.push(piece);
  assert.equal(pieces.length, 4);
  // Three messages in base64, with their heads.
  for (const piece of pieces) assert.ok(piece.length < 3 * 140 * KIB, `${piece.length} characters`);
  assert.deepEqual(payloadsIn(pieces.join('')), payloadsOf(messages));
});

test('a smaller answer is one text', () => {
  const messages = messagesOf(2, 128 * KIB);
  const answer = messagesAnswer(messages, false);
  assert.ok(answer.kind === 'text');
  assert.deepEqual(payloadsIn(answer.text), payloadsOf(messages));
});
