import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { RonError, installSched, realSched } from '@ron/kernel';
import { createLog, REDACTED, warnAtMostEvery, type Log } from './log.ts';

function capture(): { log: Log; lines: string[]; last: () => Record<string, unknown> } {
  const lines: string[] = [];
  const log = createLog({ service: 'storage', level: 'debug', sink: { write: (line) => void lines.push(line) } });
  return { log, lines, last: () => JSON.parse(lines.at(-1)!) };
}

test('a line is one JSON object with time, level, service and message', () => {
  const { log, lines, last } = capture();
  log.info({ addr: 'b3:00' }, 'stored');
  assert.equal(lines[0]!.at(-1), '\n');
  const { time, ...rest } = last();
  assert.deepEqual(rest, { level: 'info', service: 'storage', pid: process.pid, addr: 'b3:00', msg: 'stored' });
  assert.match(String(time), /^\d{4}-\d\d-\d\dT.*Z$/);
  log.trace('below the level');
  assert.equal(lines.length, 1);
});

test('a child of a child carries the bindings and the level of both', () => {
  const { log, last } = capture();
  const request = log.child({ corr_id: '01ARZ3NDEKTSV4RRFFQ69G5FAV' });
  request.level = 'trace';
  request.child({ step: 'read' }).trace('slow');
  assert.equal(last()['corr_id'], '01ARZ3NDEKTSV4RRFFQ69G5FAV');
  assert.equal(last()['step'], 'read');
});

test('secrets do not reach the log: not in fields, headers, children, arrays or errors', () => {
  const { log, lines } = capture();
  const secret = 'hunter2';
  log.info({ authorization: secret, headers: { Authorization: secret, 'set-cookie': [secret] } }, 'a');
  log.info({ req: { headers: { 'proxy-authorization': secret }, deep: [{ rootSecret: secret }] } }, 'b');
  log.child({ capability: secret, peer: { root_key: secret } }).info('c');
  log
    .child({ x: 1 })
    .child({ token: secret })
    .info({ macaroon: { id: secret } }, 'd');
  const error = Object.assign(new RonError('internal', 'failed', { details: { kms_token: secret } }), {
    password: secret,
  });
  log.error(error, 'e');
  log.error({ err: error, error }, 'f');
  log.error({ secret: Buffer.from(secret), private_key: { d: secret } }, 'g');
  log.error({ failure: error, tried: [{ reason: new Error('outer', { cause: error }) }] }, 'h');
  log.info(
    { secret_b64: secret, plaintextKeyB64: secret, tokens: [secret], api_key: secret, credentials: secret },
    'i',
  );
  log.info({ made: { toJSON: () => ({ token: secret }) } }, 'j');
  const bound = log.child({});
  bound.setBindings({ token: secret });
  bound.info('k');
  assert.equal(lines.length, 11);
  for (const line of lines) {
    assert.doesNotMatch(line, /hunter2|104,117,110/);
    assert.ok(line.includes(REDACTED), line);
  }
});

test('an error is written with its message and stack, in any field', () => {
  const { log, last } = capture();
  log.warn({ failure: new RonError('timeout', 'too late'), err: new TypeError('wrong') }, 'x');
  const { failure, err } = last() as Record<string, Record<string, string>>;
  assert.deepEqual(
    [failure!['message'], failure!['code'], err!['type'], err!['message']],
    ['too late', 'timeout', 'TypeError', 'wrong'],
  );
  assert.match(failure!['stack']!, /log\.test\.ts/);
});

test('fields whose names only resemble those of secrets are written', () => {
  const { log, last } = capture();
  log.info({ capability_file: '/data/cap', tokens: 5, token: 3, token_bucket: 'repair', key: 'k1' }, 'x');
  const { capability_file, tokens, token, token_bucket, key } = last();
  assert.deepEqual([capability_file, tokens, token, token_bucket, key], ['/data/cap', 5, 3, 'repair', 'k1']);
});

test('no value makes a log call throw, and a planted secret never comes out', () => {
  const { log, lines } = capture();
  fc.assert(
    fc.property(fc.object({ maxDepth: 8, withBigInt: true, withNullPrototype: true }), (fields) => {
      const holder: Record<string, unknown> = { fields, planted: [{ deep: { api_token: 'hunter2' } }] };
      holder['self'] = holder;
      log.info(holder, 'any');
      assert.doesNotMatch(lines.at(-1)!, /hunter2/);
      JSON.parse(lines.at(-1)!);
      lines.length = 0;
    }),
  );
});

test('a repeated warning is written once per interval and says how many were left out', (t) => {
  let now_ms = 0;
  const previous = installSched({ ...realSched, now_ms: () => now_ms });
  t.after(() => installSched(previous));
  const { log, lines, last } = capture();
  const warn = warnAtMostEvery(log, 5000);
  for (now_ms = 0; now_ms < 5000; now_ms += 100) warn({ subscriber: 'a' }, 'lagging');
  assert.equal(lines.length, 1);
  warn({ subscriber: 'a' }, 'lagging');
  assert.equal(lines.length, 2);
  assert.equal(last()['suppressed'], 49);
  now_ms += 5000;
  warn({ subscriber: 'a' }, 'lagging');
  assert.equal(last()['suppressed'], undefined);
});
