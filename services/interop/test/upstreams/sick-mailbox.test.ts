/** Batches to a mailbox that fails in every way, over a Unix socket. */
import assert from 'node:assert/strict';
import { chmod, rm, writeFile } from 'node:fs/promises';
import { test } from 'node:test';
import { inspectToken } from '@ron/auth';
import { NEVER } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { calling, messages, refuse, reply, resultsOf, type Answer } from './support.ts';

const downstream = (code: string, more: object = {}) => ({ code, reason: 'DOWNSTREAM_UNAVAILABLE', ...more });

test('a batch is one request with the framed body, over a connection that is kept', async (t) => {
  const { sends, fake } = await calling(t);
  for (let at = 0; at < 20; at++) {
    const results = await sends.send(messages(3));
    assert.deepEqual(
      results.map(({ id }) => id),
      messages(3).map(({ id }) => id),
    );
  }
  assert.deepEqual(fake.requests, Array(20).fill('POST /v1/mailbox/send?ordered=1'));
  assert.equal(fake.connections, 1);
});

test('each batch carries a token of its own that allows only its body, for seconds', async (t) => {
  const { sends, fake } = await calling(t);
  await sends.send(messages(1, 8));
  await sends.send(messages(1, 9));
  const [first, second] = fake.tokens.map((header) => inspectToken(header.replace('Bearer ', '')));
  assert.notDeepEqual(first!.caveats, second!.caveats);
  const text = JSON.stringify(first!.caveats);
  assert.match(text, /body/);
  assert.match(text, /sent/);
});

const MALFORMED: Readonly<Record<string, Answer>> = {
  'one result too few': (_, body, response) => reply(response, 200, { results: resultsOf(body).slice(1) }),
  'one result too many': (_, body, response) =>
    reply(response, 200, { results: [...resultsOf(body), ...resultsOf(body)] }),
  'results in another order': (_, body, response) => reply(response, 200, { results: resultsOf(body).toReversed() }),
  'equal payloads in another order': (_, body, response) => {
    const results = resultsOf(body);
    const ids = results.map(({ id }) => id).toReversed();
    reply(response, 200, { results: results.map((result, at) => ({ ...result, id: ids[at] })) });
  },
  'another hash': (_, body, response) =>
    reply(response, 200, { results: resultsOf(body).map((result) => ({ ...result, b3: `b3:${'0'.repeat(64)}` })) }),
  'no JSON': (_, _body, response) => reply(response, 200, 'stored'),
  'no results': (_, _body, response) => reply(response, 200, {}),
  'a redirect': (_, _body, response) => void response.writeHead(307, { Location: '/elsewhere' }).end(),
};
for (const [kind, answer] of Object.entries(MALFORMED))
  test(`a malformed answer is an error of mailbox: ${kind}`, async (t) => {
    const { sends, fake, mailbox } = await calling(t);
    fake.answer = answer;
    await assert.rejects(sends.send(messages(2)), downstream('not_ready', { status: 503 }));
    assert.equal(mailbox.describe('mailbox')!.error_rate, 1);
  });

test('a burst of 5xx opens the breaker and begins a brownout, which is reported once', async (t) => {
  const { sends, fake, mailbox, sentinel, events, problems } = await calling(t);
  fake.answer = (_, _body, response) => refuse(response, 500, 'internal');
  for (let at = 0; at < 6; at++) await assert.rejects(sends.send(messages(1)));
  assert.deepEqual([fake.requests.length, sends.isReady, sends.canTry], [5, false, false]);
  assert.match(problems.mailbox()!, /breaker for mailbox is open/);
  await sentinel.tick(NEVER);
  await sentinel.tick(NEVER);
  assert.equal(mailbox.sheds, true);
  assert.deepEqual(
    events.map(({ kind }) => kind),
    ['brownout began'],
  );
  assert.match(problems.brownout()!, /^100 % of calls to mailbox failed/);
  await eventually('the drainer may try, although the brownout lasts', () => sends.canTry);
  assert.equal(sends.isReady, false);
});

test('a short failure is retried within the deadline, with the same keys', async (t) => {
  const { sends, fake, metric } = await calling(t);
  const stores = fake.answer;
  const bodies: Buffer[] = [];
  fake.answer = (request, body, response) => {
    bodies.push(body);
    if (bodies.length === 1) request.socket.destroy();
    else stores(request, body, response);
  };
  assert.equal((await sends.send(messages(2))).length, 2);
  assert.deepEqual(bodies[0], bodies[1]);
  assert.equal(await metric('backoff_retries_total{op="deliver",result="ok"}'), 1);
});

test('[interop I-4] a mailbox that accepts and stays silent is 504 after the declared second, and counted', async (t) => {
  const { sends, fake, mailbox, metric } = await calling(t);
  fake.answer = () => undefined;
  const begun_ms = performance.now();
  await assert.rejects(sends.send(messages(1)), downstream('timeout', { status: 504 }));
  const took_ms = performance.now() - begun_ms;
  assert.ok(took_ms >= 990 && took_ms < 10_000, `${took_ms} ms`);
  assert.equal(await metric('io_timeouts_total{op="mailbox"}'), 1);
  assert.equal(mailbox.describe('mailbox')!.error_rate, 1);
});

test('a busy mailbox counts as failing; a refusal for a rate does not', async (t) => {
  const { sends, fake, mailbox } = await calling(t);
  fake.answer = (_, _body, response) => refuse(response, 429, 'rate_limited');
  await assert.rejects(sends.send(messages(1)), { code: 'rate_limited' });
  assert.equal(mailbox.describe('mailbox')!.error_rate, 0);
  fake.answer = (_, _body, response) => refuse(response, 429, 'busy');
  await assert.rejects(sends.send(messages(1)), downstream('not_ready'));
  assert.ok(mailbox.describe('mailbox')!.error_rate! > 0);
});

test('full topics are results, not failures', async (t) => {
  const { sends, fake, mailbox } = await calling(t);
  const full = { error: 'full', detail: 'the topic is full' };
  fake.answer = (_, body, response) => reply(response, 200, { results: resultsOf(body).map(() => full) });
  assert.deepEqual(await sends.send(messages(2)), [full, full]);
  assert.equal(mailbox.describe('mailbox')!.error_rate, 0);
});

test('a mailbox that is away is unreachable, and is used again once it is back', async (t) => {
  const { sends, fake } = await calling(t);
  await fake.stop();
  await assert.rejects(
    sends.send(messages(1)),
    downstream('not_ready', { message: /mailbox failed send: it is unreachable/ }),
  );
  assert.equal(sends.isReady, true, 'three failed tries do not open the breaker');
});

test('a capability that is refused, exposed or missing is a problem of this node, until it is replaced', async (t) => {
  const { sends, fake, mailbox, capability_file, problems } = await calling(t);
  const stores = fake.answer;
  fake.answer = (_, _body, response) => refuse(response, 401, 'unauthorized');
  await assert.rejects(sends.send(messages(1)), { code: 'unauthorized' });
  assert.match(problems.mailbox()!, /^mailbox refuses the capability/);
  fake.answer = stores;
  await sends.send(messages(1));
  assert.equal(problems.mailbox(), undefined);
  fake.answer = (_, _body, response) => refuse(response, 401, 'unauthorized');
  await assert.rejects(sends.send(messages(1)));
  await chmod(capability_file, 0o644);
  await assert.rejects(sends.send(messages(1)), { op: 'key_file' });
  assert.match(problems.mailbox()!, /is open to other users/);
  await rm(capability_file);
  await assert.rejects(sends.send(messages(1)), { op: 'key_file' });
  assert.equal(mailbox.describe('mailbox')!.error_rate, 0, 'mailbox has not failed');
  await writeFile(capability_file, 'x', { mode: 0o600 });
  await assert.rejects(sends.send(messages(1)), { op: 'capability' });
});

test('probes alone end the brownout of an upstream that has recovered', async (t) => {
  const { storage, fake, sentinel } = await calling(t, ['--brownout.dwell=100ms']);
  const ready = fake.answer;
  fake.answer = (_, _body, response) => refuse(response, 503, 'not_ready');
  for (let at = 0; at < 5; at++) storage.begin('put').fail(new SyntaxError('no JSON'));
  await sentinel.tick(NEVER);
  await eventually('the dwell time passes with failing probes', async () => {
    await sentinel.tick(NEVER);
    return fake.requests.length >= 30;
  });
  assert.equal(storage.sheds, true);
  fake.answer = ready;
  await eventually('the brownout ends', async () => {
    await sentinel.tick(NEVER);
    return !storage.sheds;
  });
  assert.deepEqual(new Set(fake.requests), new Set(['GET /readyz']));
});
