/**
 * Upstreams that accept and stay silent, answer 5xx in bursts, or are slow: each endpoint answers with the reason of the page at
 * its declared deadline and not before, reads go on, and `/readyz` reports the lane.
 *
 * The process of an upstream is replaced by a server of the test on its socket.
 */
import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { eventually } from '@ron/testkit';
import { addressOf, type Reply } from '@ron/testkit/service';
import { concurrency } from '../../src/concurrency.ts';
import { RECEIPT_WAIT_MS } from '../../src/routes/receipts.ts';
import { HealthWatch } from '../node/health.ts';
import { TestNode, type NodeService } from '../node/node.ts';
import { addProvider, signed } from '../node/senders.ts';
import { fakeUpstream, refuse, type Answer } from '../upstreams/support.ts';

const OBJECT = Buffer.from('an object that is there');
/** For the answer and a busy machine. */
const TOLERANCE_MS = 1200;
/** Node rounds timers to milliseconds. */
const EARLY_MS_MAX = 5;
const { request, passport, kms, provider } = concurrency.deadlines;
/** The default of `spool.after`. */
const SPOOL_AFTER_MS = 250;
/** Short brownouts, and none because the machine is busy. */
const BROWNOUT = ['--brownout.dwell=500ms', '--brownout.p95=1m'];

const silent: Answer = () => undefined;
const failing: Answer = (_, __, response) => refuse(response, 500, 'internal');
/** Reads succeed. */
const failingWrites: Answer = (message, body, response) => {
  if (message.method !== 'GET') return failing(message, body, response);
  response.writeHead(200, { 'Content-Type': 'application/octet-stream', 'Content-Length': OBJECT.length }).end(OBJECT);
};
const slow: Answer = (_, __, response) => void pause(600).then(() => refuse(response, 500, 'internal'));

async function startNode(t: TestContext): Promise<TestNode> {
  const node = await TestNode.start(t, { flags: { interop: BROWNOUT } });
  for (const name of ['github', 'sampled']) await addProvider(await node.admin(), 'github', name);
  return node;
}

/** Runs `work` while a server of the test answers in place of a service. Afterwards the service runs again. */
async function replaced(node: TestNode, name: NodeService, answer: Answer, work: () => Promise<void>): Promise<void> {
  await node.kill(name);
  const path = node.socketOf(name).slice('unix:'.length);
  await rm(path, { force: true });
  const cleanUps: (() => Promise<void> | void)[] = [];
  const fake = await fakeUpstream({ after: (cleanUp) => void cleanUps.push(cleanUp) }, path);
  fake.answer = answer;
  try {
    await work();
    assert.ok(fake.connections > 0, 'the server was called');
  } finally {
    for (const cleanUp of cleanUps) await cleanUp();
    await rm(path, { force: true });
    await node.start(name);
  }
}

/** The answer comes before the deadline, or soon after it. */
const within = (deadline_ms: number, sent: Promise<Reply>): Promise<Reply> => between(0, deadline_ms, sent);
/** The answer comes soon after the deadline. */
const at = (deadline_ms: number, sent: Promise<Reply>): Promise<Reply> => between(deadline_ms, deadline_ms, sent);

async function between(early_ms: number, late_ms: number, sent: Promise<Reply>): Promise<Reply> {
  const { reply, took_ms } = await timed(sent);
  requireTime(took_ms, early_ms, late_ms);
  return reply;
}

async function timed(sent: Promise<Reply>): Promise<{ readonly reply: Reply; readonly took_ms: number }> {
  const begun_ms = performance.now();
  const reply = await sent;
  return { reply, took_ms: Math.round(performance.now() - begun_ms) };
}

function requireTime(took_ms: number, early_ms: number, late_ms: number): void {
  assert.ok(took_ms >= early_ms - EARLY_MS_MAX, `the answer took ${took_ms} ms, it may come after ${early_ms} ms`);
  assert.ok(took_ms < late_ms + TOLERANCE_MS, `the answer took ${took_ms} ms, the deadline is ${late_ms} ms`);
}

function assertReason(reply: Reply, statuses: readonly number[], reason: string): void {
  assert.ok(statuses.includes(reply.status), `${reply.status}: ${reply.text}`);
  assert.deepEqual([reply.headers['x-reason'], reply.json.reason], [reason, reason]);
}

test('[interop I-4] upstreams that hang', { timeout: 180_000 }, async (t) => {
  const node = await startNode(t);
  const user = await node.user();
  const admin = { authorization: `Bearer ${await node.token('interop')}` };
  let n = 0;
  const put = (): Promise<Reply> => node.send('POST', '/put', { headers: user, body: `object ${(n += 1)}` });
  const read = (): Promise<Reply> => node.send('GET', `/o/${addressOf(OBJECT)}`);
  const hook = (): Promise<Reply> => node.send('POST', '/webhooks/github', signed('github', `id ${(n += 1)}`));
  const sample = (): Promise<Reply> => node.send('POST', '/admin/providers/sampled/test', { headers: admin });
  await eventually('an object is stored', async () => {
    const reply = await node.send('POST', '/put', { headers: user, body: OBJECT });
    return reply.status === 200 || reply.status === 201;
  });
  const isHealthy = async (): Promise<boolean> => {
    for (const lane of ['bridge', 'put']) if ((await node.readyz(lane)).status !== 200) return false;
    return true;
  };
  /** Calls close the breakers; brownouts end by themselves. */
  const recovers = (): Promise<void> =>
    eventually('the node is healthy again', async () => {
      const replies = await Promise.all([put(), read(), hook()]);
      return replies.every(({ status }) => status < 300) && (await isHealthy());
    });
  /** The breaker may be half-open for a moment, or closed until the next failure. */
  const closesPut = (upstream: RegExp): Promise<void> =>
    eventually('the lane put closes', async () => {
      await put();
      const { status, closed } = await node.readyz('put');
      return status === 503 && upstream.test(Object.values(closed).join());
    });
  await recovers();
  const health = new HealthWatch(node);

  await t.test('a silent mailbox: webhooks are spooled in time, and the lane bridge says why', async () => {
    await replaced(node, 'mailbox', silent, async () => {
      const first = await at(SPOOL_AFTER_MS, sample());
      assert.deepEqual([first.status, first.json.place], [200, 'spool'], first.text);
      for (let count = 0; count < 3; count += 1) {
        // At once after the breaker has opened.
        const reply = await within(SPOOL_AFTER_MS, hook());
        assert.deepEqual([reply.status, reply.json.place], [202, 'spool'], reply.text);
      }
      await eventually('the lane closes', async () => (await node.readyz('bridge')).status === 503);
      assert.equal((await node.readyz()).status, 200, 'the gate is soft');
      assert.equal((await read()).status, 200);
    });
    await recovers();
    await eventually('the spool is empty', async () => (await node.metric('interop', 'spool_deliveries')) === 0);
  });

  await t.test('a silent storage: put and reads get 504 at their deadline, then 503; webhooks go on', async () => {
    await replaced(node, 'storage', silent, async () => {
      const [stored, got] = await Promise.all([at(request.ms, put()), at(request.ms, read())]);
      for (const reply of [stored, got]) assertReason(reply, [504], 'DOWNSTREAM_UNAVAILABLE');
      assert.equal((await hook()).status, 202);
      await eventually('put is refused at once', async () => {
        const reply = await within(request.ms, put());
        assert.ok([503, 504].includes(reply.status), reply.text);
        return reply.status === 503;
      });
      await closesPut(/storage/);
    });
    await recovers();
  });

  for (const [how, answer] of [
    ['silent', silent],
    ['slow', slow],
  ] as const)
    await t.test(`a ${how} passport: put gets 504 after 500 ms, then 503; reads and webhooks go on`, async () => {
      await replaced(node, 'passport', answer, async () => {
        assertReason(await at(passport.ms, put()), [504], 'DOWNSTREAM_UNAVAILABLE');
        await eventually('put is refused at once', async () => {
          const reply = await within(passport.ms, put());
          assert.ok([503, 504].includes(reply.status), reply.text);
          return reply.status === 503;
        });
        await closesPut(/passport/);
        assert.deepEqual([(await read()).status, (await hook()).status], [200, 202]);
      });
      await recovers();
    });

  await t.test('a burst of 5xx from passport: a brownout sheds put with BACKPRESSURE, and reads go on', async () => {
    await replaced(node, 'passport', failing, async () => {
      await eventually('the brownout begins', async () => {
        const reply = await within(passport.ms, put());
        assert.ok([502, 503, 504].includes(reply.status), reply.text);
        return reply.headers['x-reason'] === 'BACKPRESSURE';
      });
      await closesPut(/passport/);
      assert.equal((await read()).status, 200);
    });
    await recovers();
  });

  await t.test(
    'a burst of 5xx from storage: put gets 503 and is then shed; kept objects and webhooks go on',
    async () => {
      await replaced(node, 'storage', failingWrites, async () => {
        assertReason(await within(request.ms, put()), [503], 'DOWNSTREAM_UNAVAILABLE');
        await eventually('the brownout begins', async () => {
          const reply = await within(request.ms, put());
          assert.equal(reply.status, 503, reply.text);
          return reply.headers['x-reason'] === 'BACKPRESSURE';
        });
        await closesPut(/storage/);
        const reply = await hook();
        assert.deepEqual([reply.status, reply.json.place], [202, 'mailbox'], reply.text);
        await eventually('objects are read', async () => (await read()).body.equals(OBJECT));
      });
      await recovers();
    },
  );

  await t.test('a burst of 5xx from mailbox: webhooks are spooled and arrive', async () => {
    await replaced(node, 'mailbox', failing, async () => {
      for (let count = 0; count < 8; count += 1) {
        const reply = await within(request.ms, hook());
        assert.deepEqual([reply.status, reply.json.place], [202, 'spool'], reply.text);
      }
    });
    await recovers();
  });

  await t.test(
    'a silent kms: webhooks are accepted, a wait for a signature and a new secret end at their deadline',
    async () => {
      let receipt = '';
      const headers = { ...admin, 'content-type': 'application/json' };
      await replaced(node, 'kms', silent, async () => {
        const reply = await hook();
        assert.equal(reply.status, 202, reply.text);
        ({ receipt } = reply.json);
        const secret = 'another secret of enough bytes';
        const change = (method: string, path: string, body: object): Promise<Reply> =>
          node.send(method, `/admin/providers/${path}`, { headers, body: JSON.stringify(body) });
        const [waited, ...changed] = await Promise.all([
          at(RECEIPT_WAIT_MS, node.send('GET', `/receipts/${receipt}?wait=1`, { headers })),
          timed(change('PUT', 'other', { scheme: 'github', secret })),
          timed(change('PUT', 'another', { scheme: 'github', secret })),
          timed(change('POST', 'github/rotate', { secret })),
        ]);
        assert.equal(waited.status, 202, waited.text);
        for (const each of changed) assertReason(each.reply, [503, 504], 'DOWNSTREAM_UNAVAILABLE');
        // One change at a time calls kms; the last one ends while it waits for them or for kms.
        const times = changed.map(({ took_ms }) => took_ms).toSorted((a, b) => a - b);
        const deadlines = [kms.ms, 2 * kms.ms, Math.min(3 * kms.ms, provider.ms)];
        for (const [nth, deadline_ms] of deadlines.entries()) requireTime(times[nth]!, deadline_ms, deadline_ms);
      });
      await eventually(
        'the receipt is signed',
        async () => (await node.send('GET', `/receipts/${receipt}`, { headers })).status === 200,
      );
      await recovers();
    },
  );
  await health.stop();
});
