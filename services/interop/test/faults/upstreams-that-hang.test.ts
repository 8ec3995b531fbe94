/**
 * Upstreams that accept and stay silent, answer 5xx in bursts, or are slow: each endpoint answers with the reason of the page at
 * its deadline, reads go on, and `/readyz` reports the lane.
 *
 * The process of an upstream is replaced by a server of the test on its socket.
 */
import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { eventually } from '@ron/testkit';
import { addressOf, type Reply } from '@ron/testkit/service';
import { HealthWatch } from '../node/health.ts';
import { TestNode, type NodeService } from '../node/node.ts';
import { addProvider, signed } from '../node/senders.ts';
import { fakeUpstream, refuse, type Answer } from '../upstreams/support.ts';

const OBJECT = Buffer.from('an object that is there');
/** For the answer and a busy machine. */
const TOLERANCE_MS = 1200;
/** The page: `request`, the exchange, and the wait of `?wait=1`. */
const [REQUEST_MS, PASSPORT_MS] = [2000, 500];
const SHORT_BROWNOUT = ['--brownout.dwell=500ms'];

const silent: Answer = () => undefined;
const failing: Answer = (_, __, response) => refuse(response, 500, 'internal');
const slow: Answer = (_, __, response) => void pause(600).then(() => refuse(response, 500, 'internal'));

async function startNode(t: TestContext): Promise<TestNode> {
  const node = await TestNode.start(t, { flags: { interop: SHORT_BROWNOUT } });
  await addProvider(await node.admin(), 'github');
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

async function within(deadline_ms: number, sent: Promise<Reply>): Promise<Reply> {
  const begun_ms = performance.now();
  const reply = await sent;
  const took_ms = Math.round(performance.now() - begun_ms);
  assert.ok(took_ms < deadline_ms + TOLERANCE_MS, `the answer took ${took_ms} ms, the deadline is ${deadline_ms} ms`);
  return reply;
}

function assertReason(reply: Reply, statuses: readonly number[], reason: string): void {
  assert.ok(statuses.includes(reply.status), `${reply.status}: ${reply.text}`);
  assert.deepEqual([reply.headers['x-reason'], reply.json.reason], [reason, reason]);
}

test('[interop I-4] upstreams that hang', { timeout: 180_000 }, async (t) => {
  const node = await startNode(t);
  const user = await node.user();
  let n = 0;
  const put = (): Promise<Reply> => node.send('POST', '/put', { headers: user, body: `object ${(n += 1)}` });
  const read = (): Promise<Reply> => node.send('GET', `/o/${addressOf(OBJECT)}`);
  const hook = (): Promise<Reply> => node.send('POST', '/webhooks/github', signed('github', `id ${(n += 1)}`));
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
      for (let at = 0; at < 3; at += 1) {
        const reply = await within(250, hook());
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
      const [stored, got] = await Promise.all([within(REQUEST_MS, put()), within(REQUEST_MS, read())]);
      for (const reply of [stored, got]) assertReason(reply, [504], 'DOWNSTREAM_UNAVAILABLE');
      assert.equal((await hook()).status, 202);
      await eventually('put is refused at once', async () => {
        const reply = await within(REQUEST_MS, put());
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
        assertReason(await within(PASSPORT_MS, put()), [504], 'DOWNSTREAM_UNAVAILABLE');
        await eventually('put is refused at once', async () => {
          const reply = await within(PASSPORT_MS, put());
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
        const reply = await within(PASSPORT_MS, put());
        assert.ok([502, 503, 504].includes(reply.status), reply.text);
        return reply.headers['x-reason'] === 'BACKPRESSURE';
      });
      await closesPut(/passport/);
      assert.equal((await read()).status, 200);
    });
    await recovers();
  });

  await t.test('a burst of 5xx from mailbox: webhooks are spooled and arrive', async () => {
    await replaced(node, 'mailbox', failing, async () => {
      for (let at = 0; at < 8; at += 1) {
        const reply = await within(REQUEST_MS, hook());
        assert.deepEqual([reply.status, reply.json.place], [202, 'spool'], reply.text);
      }
    });
    await recovers();
  });

  await t.test(
    'a silent kms: webhooks are accepted, a wait for a signature and a new secret end at their deadline',
    async () => {
      let receipt = '';
      const headers = { authorization: `Bearer ${await node.token('interop')}`, 'content-type': 'application/json' };
      await replaced(node, 'kms', silent, async () => {
        const reply = await hook();
        assert.equal(reply.status, 202, reply.text);
        ({ receipt } = reply.json);
        assert.equal((await within(2000, node.send('GET', `/receipts/${receipt}?wait=1`, { headers }))).status, 202);
        const body = JSON.stringify({ scheme: 'github', secret: 'another secret of enough bytes' });
        const added = await within(5000, node.send('PUT', '/admin/providers/other', { headers, body }));
        assertReason(added, [503, 504], 'DOWNSTREAM_UNAVAILABLE');
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
