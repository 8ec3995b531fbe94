import assert from 'node:assert/strict';
import { validateHeaderName, validateHeaderValue } from 'node:http';
import { test } from 'node:test';
import fc from 'fast-check';
import { ERRORS, RonError } from '@ron/kernel';
import type { ErrorCode } from '@ron/kernel';
import { fuzzRuns } from '@ron/testkit';
import { problemFor, retryAfter_s } from './problem.ts';

const CODES = Object.keys(ERRORS) as ErrorCode[];

test('every code of the error table becomes a problem with its own status', () => {
  for (const code of CODES) {
    const problem = problemFor(new RonError(code, 'told so'), 'abc');
    const body = JSON.parse(problem.body);
    const row = ERRORS[code];
    const expected = row.status === 0 ? { code: 'internal', status: 500 } : { code, status: row.status };
    assert.equal(problem.status, expected.status);
    assert.equal(body.status, expected.status);
    assert.equal(body.code, expected.code);
    assert.equal(body.type, `urn:ron:problem:${expected.code}`);
    assert.equal(body.corr_id, 'abc');
    assert.equal(body.retryable, ERRORS[expected.code as ErrorCode].retryable);
    assert.equal(typeof body.title, 'string');
    if (expected.code !== 'internal') assert.equal(body.detail, 'told so');
    assert.equal(problem.headers['content-type'], 'application/problem+json');
    assert.equal(problem.headers['content-length'], String(Buffer.byteLength(problem.body)));
    assert.equal(problem.headers['x-corr-id'], 'abc');
  }
});

test('an unknown error, an internal one and one that is not for clients do not leak their message', () => {
  const secret = 'password=hunter2 at /srv/secret.ts';
  for (const error of [
    new Error(secret),
    new RonError('internal', secret, { details: { secret } }),
    secret,
    { message: secret },
  ]) {
    const problem = problemFor(error, 'abc');
    assert.equal(problem.status, 500);
    assert.ok(!problem.body.includes('hunter2'), problem.body);
    assert.equal(JSON.parse(problem.body).code, 'internal');
  }
});

test('429 and 503 carry Retry-After in whole seconds, at least one and never less than requested; others do not', () => {
  for (const code of CODES) {
    const { status, headers } = problemFor(new RonError(code, 'x', { retry_after_ms: 4200 }), 'abc');
    if (status === 429 || status === 503) {
      assert.match(headers['retry-after'] ?? '', /^[1-9][0-9]*$/);
      assert.ok(Number(headers['retry-after']) >= 5);
    } else assert.equal(headers['retry-after'], undefined);
  }
});

test('Retry-After is spread, so that refused clients do not return together', () => {
  const seen = new Set(Array.from({ length: 200 }, () => retryAfter_s(1000)));
  assert.ok(seen.size >= 3, `only ${[...seen].join()}`);
  fc.assert(
    fc.property(fc.option(fc.double(), { nil: undefined }), (asked_ms) => {
      const seconds = retryAfter_s(asked_ms);
      assert.ok(Number.isInteger(seconds) && seconds >= 1 && seconds <= 3600);
      if (asked_ms !== undefined && asked_ms >= 0 && asked_ms <= 3_600_000) assert.ok(seconds * 1000 >= asked_ms);
    }),
    fuzzRuns(500),
  );
});

test('details become members but never replace those of the problem', () => {
  const body = JSON.parse(
    problemFor(
      new RonError('busy', 'full', { details: { queue: 'work', status: 200, code: 'fine', corr_id: 'no' } }),
      'abc',
    ).body,
  );
  assert.equal(body.queue, 'work');
  assert.equal(body.status, 429);
  assert.equal(body.code, 'busy');
  assert.equal(body.corr_id, 'abc');
});

test('details that JSON cannot represent are dropped, the answer is kept', () => {
  const body = JSON.parse(problemFor(new RonError('busy', 'full', { details: { big: 1n } }), 'abc').body);
  assert.equal(body.code, 'busy');
  assert.equal(body.big, undefined);
});

test('401 names the scheme and 405 the methods', () => {
  assert.equal(problemFor(new RonError('unauthorized', 'x'), 'a').headers['www-authenticate'], 'Bearer realm="ron"');
  const allow = { details: { allow: ['GET', 'HEAD', 'bad\r\nx: y'] } };
  assert.equal(problemFor(new RonError('method_not_allowed', 'x', allow), 'a').headers['allow'], 'GET, HEAD');
});

test('for any thrown value the headers are valid and the body parses', () => {
  fc.assert(
    fc.property(
      fc.anything(),
      fc.string({ unit: 'binary' }),
      fc.constantFrom(...CODES),
      fc.string({ unit: 'binary' }),
      (thrown, corr_id, code, message) => {
        for (const error of [thrown, new RonError(code, message, { details: { thrown } })]) {
          const problem = problemFor(error, corr_id);
          for (const [name, value] of Object.entries(problem.headers)) {
            validateHeaderName(name);
            validateHeaderValue(name, value);
          }
          assert.equal(JSON.parse(problem.body).corr_id, problem.headers['x-corr-id']);
        }
      },
    ),
    fuzzRuns(500),
  );
});
