import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AnswerError } from '@ron/client';
import { RonError, type ErrorCode } from '@ron/kernel';
import { outcomeOf, type Outcome } from './outcome.ts';

const answer = (http_status: number, code: ErrorCode): AnswerError =>
  new AnswerError(code, '', { op: 'put', http_status });

test('an answer counts as an error if its status is 500 or above, except 507, or if it is busy', () => {
  const answers: readonly (readonly [number, ErrorCode, Outcome])[] = [
    [500, 'internal', 'error'],
    [502, 'bad_gateway', 'error'],
    [503, 'not_ready', 'error'],
    [503, 'draining', 'error'],
    [503, 'canceled', 'error'],
    [504, 'timeout', 'error'],
    [507, 'storage_full', 'ok'],
    [429, 'busy', 'error'],
    [429, 'inflight_limit', 'error'],
    [429, 'conns_max', 'error'],
    [429, 'rate_limited', 'ok'],
    [429, 'address_rate_limited', 'ok'],
    [400, 'validation', 'ok'],
    [401, 'unauthorized', 'ok'],
    [404, 'not_found', 'ok'],
    [408, 'request_timeout', 'ok'],
    [409, 'conflict', 'ok'],
    [499, 'bad_request', 'ok'],
  ];
  for (const [status, code, outcome] of answers)
    assert.equal(outcomeOf(answer(status, code)), outcome, `${status} ${code}`);
});

test('a failure without an answer counts, unless the caller cancelled or the call was not sent', () => {
  for (const code of ['unreachable', 'timeout', 'integrity', 'bad_gateway'] as const)
    assert.equal(outcomeOf(new RonError(code, '')), 'error', code);
  // Such as an unreadable capability file, a body that a client did not finish, or a refusal by the breaker.
  for (const code of [
    'canceled',
    'not_ready',
    'request_timeout',
    'payload_too_large',
    'validation',
    'breaker_open',
  ] as const)
    assert.equal(outcomeOf(new RonError(code, '')), 'none', code);
  assert.equal(outcomeOf(new DOMException('', 'AbortError')), 'none');
  assert.equal(outcomeOf(new SyntaxError('unexpected end of JSON input')), 'error');
  assert.equal(outcomeOf(Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' })), 'error');
});
