import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline, isRonError, liveFill, POLICIES, RetryBudget } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { clientOf, get, HOST, hostile, never, ok, quiet, refused, text } from './support.ts';

const quick = liveFill({ base_ms: 1, max_ms: 2 });
const busy = 'HTTP/1.1 503 X\r\ncontent-length: 4\r\n\r\nbusy';

test('503 and 504 are tried again by the policy, then they are an error', async () => {
  let failures = 2;
  await using server = await hostile((socket) => socket.write(failures-- > 0 ? busy : ok()));
  const retries: string[] = [];
  const onRetry = (op: string, result: string): void => void retries.push(`${op} ${result}`);
  await using egress = clientOf(server, { onRetry, breaker: { calls_min: 1000 } });
  const deadline = never();
  assert.equal(text((await egress.whole({ url: server.url }, { deadline, retry: quick })).body), 'hello');
  assert.equal(server.requests.length, 3);
  assert.deepEqual(retries, ['test failed', 'test ok']);
  failures = 100;
  await refused(egress.whole({ url: server.url }, { deadline, retry: quick }), 'not_ready', 'egress_status');
  assert.equal(server.requests.length, 6);
  assert.equal((await get(egress, server.url)).status, 503, 'without a policy it is an answer');
  await quiet(egress);
  assert.equal(egress.outcomes.status, 5);
});

test('Retry-After is waited out before the next try, and one beyond the deadline ends the retries', async () => {
  const times_ms: number[] = [];
  await using server = await hostile((socket, head) => {
    times_ms.push(performance.now());
    const wait = head.includes('/later') ? '60' : '1';
    if (times_ms.length === 2) socket.write(ok());
    else socket.write(busy.replace('\r\n', `\r\nretry-after: ${wait}\r\n`));
  });
  await using egress = clientOf(server, { breaker: { calls_min: 1000 } });
  assert.equal((await egress.whole({ url: server.url }, { deadline: never(), retry: quick })).status, 200);
  assert.ok(times_ms[1]! - times_ms[0]! >= 990, 'a timer may be a little early');
  using deadline = Deadline.after('test', 50_000);
  const later = egress.whole({ url: `${server.url}later` }, { deadline, retry: quick });
  const error = await refused(later, 'not_ready', 'egress_status');
  assert.equal(error.retry_after_ms, 60_000);
  assert.equal(times_ms.length, 3);
});

test('a timeout is tried again, an invalid answer is not', async () => {
  await using server = await hostile((socket, head, count) => {
    if (head.includes('/invalid')) socket.end('junk');
    else if (server.requests.length > 1 || count > 1) socket.write(ok());
  });
  await using egress = clientOf(server, { limits: { first_byte_ms: 200 } });
  const deadline = never();
  assert.equal((await egress.whole({ url: server.url }, { deadline, retry: quick })).status, 200);
  assert.equal(server.requests.length, 2);
  await refused(egress.whole({ url: `${server.url}invalid` }, { deadline, retry: quick }), 'bad_gateway');
  assert.equal(server.requests.length, 3);
});

test('only idempotent requests are retried', async () => {
  await using server = await hostile((socket) => socket.write(busy));
  await using egress = clientOf(server);
  const request = { url: server.url, method: 'POST', body: Buffer.from('x') } as const;
  await refused(egress.whole(request, { deadline: never(), retry: quick }), 'internal');
  assert.equal(server.requests.length, 0);
  await refused(egress.whole({ ...request, idempotent: true }, { deadline: never(), retry: quick }), 'not_ready');
  assert.equal(server.requests.length, 3);
});

test('a breaker that opens ends the retries with the error that opened it', async () => {
  await using server = await hostile((socket) => socket.write(busy));
  await using egress = clientOf(server, { breaker: { calls_min: 2, trip_threshold: 0 } });
  await refused(egress.whole({ url: server.url }, { deadline: never(), retry: quick }), 'not_ready', 'egress_status');
  assert.equal(server.requests.length, 2);
});

test('the retry budget bounds retries over all callers', async () => {
  await using server = await hostile((socket) => socket.write(busy));
  const retry_budget = new RetryBudget({ floor: 2, ratio: 0 });
  await using egress = clientOf(server, { retry_budget, breaker: { calls_min: 1000 } });
  for (let call = 0; call < 5; call++)
    await refused(egress.whole({ url: server.url }, { deadline: never(), retry: quick }), 'not_ready');
  assert.equal(server.requests.length, 5 + 2);
});

test('a server that keeps failing is no longer dialled, others are; then one probe decides', async () => {
  let healthy = false;
  await using server = await hostile((socket, head) => {
    if (healthy || head.includes('host: 127.')) socket.write(ok());
    else socket.end('junk');
  });
  await using egress = clientOf(server, { breaker: { calls_min: 4, cooldown_ms: 300 } });
  for (let call = 0; call < 4; call++) await refused(get(egress, server.url), 'bad_gateway');
  const { length } = server.requests;
  await refused(get(egress, server.url), 'breaker_open');
  await refused(egress.whole({ url: server.url }, { deadline: never(), retry: POLICIES.rpc }), 'breaker_open');
  assert.equal(server.requests.length, length);
  assert.equal((await get(egress, `https://127.0.0.1:${server.port}/`)).status, 200);
  healthy = true;
  const recovered = async (): Promise<boolean> =>
    get(egress, server.url).then(
      () => true,
      (error: unknown) => (assert.ok(isRonError(error, 'breaker_open')), false),
    );
  await eventually('the breaker closes', recovered);
  assert.equal(egress.outcomes.protocol, 4);
  await quiet(egress);
});

test('connection errors, timeouts and 5xx count against a server', async () => {
  const answers: Record<string, string> = {
    '/500': busy.replace('503', '500'),
    '/cut': 'HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx',
  };
  await using server = await hostile((socket, head) => {
    const path = head.split(' ')[1]!;
    if (path !== '/silent') socket.end(answers[path] ?? ok());
  });
  for (const path of ['500', 'cut', 'silent']) {
    await using egress = clientOf(server, {
      breaker: { calls_min: 3 },
      limits: { first_byte_ms: path === 'silent' ? 50 : 60_000 },
    });
    for (let call = 0; call < 3; call++) await get(egress, server.url + path).catch(() => undefined);
    await refused(get(egress, server.url), 'breaker_open');
  }
  await using unknown = clientOf(server, {
    breaker: { calls_min: 3 },
    lookup: () => Promise.reject(new Error('NXDOMAIN')),
  });
  for (let call = 0; call < 3; call++) await refused(get(unknown, server.url), 'unreachable', 'egress_dns');
  await refused(get(unknown, server.url), 'breaker_open');
});

test('refusals by policy, limits on bytes, callers that fail or leave do not count against a server', async () => {
  await using server = await hostile((socket) => socket.write(ok()));
  await using egress = clientOf(server, { breaker: { calls_min: 1, trip_threshold: 0 } });
  const { url } = server;
  const deadline = never();
  await refused(egress.whole({ url, bytes_max: 1 }, { deadline }), 'payload_too_large');
  await refused(egress.whole({ url, headers: { host: 'x' } }, { deadline }), 'validation');
  const mine = new Error('the disk is full');
  await assert.rejects(
    egress.exchange({ url }, { deadline }, () => Promise.reject(mine)),
    mine,
  );
  // Long enough for the answer to arrive on a loaded machine: only the caller may be late.
  using short = Deadline.after('mine', 700);
  await refused(
    egress.exchange({ url }, { deadline: short }, () => new Promise<never>(() => undefined)),
    'timeout',
    'mine',
  );
  using left = Deadline.after('mine', 60_000);
  const leaving = egress.exchange({ url }, { deadline: left }, async (answer) => {
    left.cancel(mine);
    return answer.status;
  });
  await assert.rejects(leaving, mine);
  await using refusing = clientOf(server, { networks: [], breaker: { calls_min: 1, trip_threshold: 0 } });
  for (let call = 0; call < 3; call++) await refused(get(refusing, url), 'reject_policy');
  assert.equal((await get(egress, url)).status, 200);
  const { caller, policy, too_large } = egress.outcomes;
  assert.deepEqual({ caller, policy, too_large }, { caller: 1, policy: 1, too_large: 1 });
  assert.match(url, new RegExp(HOST));
});
