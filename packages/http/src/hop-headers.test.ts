import assert from 'node:assert/strict';
import { test } from 'node:test';
import { endToEnd } from './hop-headers.ts';

test('headers of one connection, those that Connection names, and dropped ones are removed; others stay as they are', () => {
  const raw = ['Host', 'a', 'CONNECTION', 'close, X-One', 'connection', ' x-two ', 'X-One', '1', 'x-TWO', '2'];
  const more = ['Transfer-Encoding', 'chunked', 'TE', 'trailers', 'Upgrade', 'h2c', 'Keep-Alive', '5', 'Via', 'v'];
  const kept = ['X-Three', '3', 'x-three', '4', 'Content-Length', '5'];
  assert.deepEqual(endToEnd([...raw, ...more, ...kept], new Set(['host', 'via'])), kept);
});

test('a client cannot remove the framing by naming it', () => {
  assert.deepEqual(endToEnd(['Connection', 'Content-Length', 'Content-Length', '5'], new Set()), [
    'Content-Length',
    '5',
  ]);
});
