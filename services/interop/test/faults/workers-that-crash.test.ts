/** Tasks of interop that crash under load: each request is answered, the tasks come back, and nothing accepted is lost. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eventually } from '@ron/testkit';
import { addressOf, type Reply } from '@ron/testkit/service';
import { checkAccepted } from '../node/check.ts';
import { Consumer } from '../node/consumer.ts';
import { Load } from '../node/load.ts';
import { TestNode } from '../node/node.ts';
import { addProvider, NO_RATES } from '../node/senders.ts';

/** In the order in which they crash. */
const KINDS = ['put_pool', 'read_pool', 'sender', 'receipt_signer', 'brownout_sentinel', 'spool_drainer'] as const;
/** More are fatal. */
const RESTARTS_MAX = 5;
/** One worker each, so that a crash hits the work in hand. */
const ONE_WORKER = ['--interop.put_workers=1', '--interop.read_workers=1', '--brownout.p95=1m'];
const SCHEMES = ['github', 'stripe'] as const;

test('[interop I-8] every task crashes under load: all requests are answered, and nothing accepted is lost', async (t) => {
  const node = await TestNode.start(t, { inside: {}, flags: { interop: [...NO_RATES, ...ONE_WORKER] } });
  const admin = await node.admin();
  for (const scheme of SCHEMES) await addProvider(admin, scheme);
  const { supervisor } = node.interop.runtime;
  const load = new Load(t, { url: () => node.url, schemes: SCHEMES });
  const objects = new Objects(node, await node.user());
  load.start();
  const using = objects.start();
  for (const kind of KINDS) {
    const before = objects.stored.length;
    // An idle drainer has no work in hand.
    if (kind === 'spool_drainer') await node.kill('mailbox');
    await load.moves(10);
    supervisor.kill(kind, 0);
    if (kind === 'spool_drainer') await node.start('mailbox');
    await eventually(`${kind} restarts`, async () => (await restarts(node, kind)) === 1);
    await load.moves(10);
    await eventually('objects are stored and read', () => objects.stored.length > before);
  }
  objects.isStopped = true;
  await Promise.all([using, load.stop()]);
  assert.equal(load.refusals.get('none'), undefined, 'every webhook was answered');
  assert.equal((await node.send('GET', '/healthz')).status, 200);
  const mailbox = await node.mailbox();
  const consumer = new Consumer(
    t,
    mailbox,
    SCHEMES.map((scheme) => `hooks.${scheme}`),
  );
  await checkAccepted(node, load, consumer);
  for (const address of objects.stored) assert.equal((await node.send('GET', `/o/${address}`)).status, 200);
  const { ingress } = node.interop;
  assert.equal(ingress.admission.inflight, 0, 'no request is left');
  t.diagnostic(
    `${load.accepted.length} webhooks, ${objects.stored.length} objects, refused ${JSON.stringify([...load.refusals])}`,
  );
});

const restarts = (node: TestNode, kind: string): Promise<number> =>
  node.metric('interop', `tasks_restarted_total{kind="${kind}"}`);

/** One client of the bridge. */
class Objects {
  readonly stored: string[] = [];
  isStopped = false;
  readonly #node: TestNode;
  readonly #headers: Readonly<Record<string, string>>;

  constructor(node: TestNode, headers: Readonly<Record<string, string>>) {
    this.#node = node;
    this.#headers = headers;
  }

  async start(): Promise<void> {
    for (let n = 0; !this.isStopped; n += 1) {
      const body = Buffer.from(`object ${n}`);
      const address = addressOf(body);
      const put = await this.#answered(this.#node.send('POST', '/put', { headers: this.#headers, body }));
      if (put.status >= 300) continue;
      const got = await this.#answered(this.#node.send('GET', `/o/${address}`));
      if (got.status === 200) {
        assert.ok(got.body.equals(body));
        this.stored.push(address);
      }
    }
  }

  async #answered(sent: Promise<Reply>): Promise<Reply> {
    const reply = await sent;
    assert.ok([200, 201].includes(reply.status) || reply.status >= 500, reply.text);
    return reply;
  }
}

test('[interop I-8] a critical task that crashes more than five times in a minute is fatal, and healthz states it', async (t) => {
  const fatal: string[] = [];
  const node = await TestNode.start(t, {
    services: ['kms', 'passport', 'interop'],
    inside: { onFatal: (kind) => void fatal.push(kind) },
  });
  const { supervisor } = node.interop.runtime;
  for (let crash = 1; crash <= RESTARTS_MAX; crash += 1) {
    supervisor.kill('sender');
    await eventually('it restarts', async () => (await restarts(node, 'sender')) === crash);
    assert.equal((await node.send('GET', '/healthz')).status, 200);
  }
  supervisor.kill('sender');
  await eventually('it is fatal', () => fatal.length > 0);
  assert.deepEqual(fatal, ['sender']);
  const health = await node.send('GET', '/healthz');
  assert.equal(health.status, 503);
  assert.match(health.text, /sender/);
});
