/** Tasks of interop that crash under load: each request is answered, the tasks come back, and nothing accepted is lost. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bytesOf, eventually, KIB, MIB } from '@ron/testkit';
import { addressOf, RawClient, type Reply } from '@ron/testkit/service';
import { checkAccepted } from '../node/check.ts';
import { Consumer } from '../node/consumer.ts';
import { Load } from '../node/load.ts';
import { TestNode } from '../node/node.ts';
import { addProvider, NO_RATES } from '../node/senders.ts';

/** In the order in which they crash. */
const KINDS = [
  'put_pool',
  'read_pool',
  'sender',
  'receipt_signer',
  'brownout_sentinel',
  'audit_sink',
  'secret_refresh',
  'spool_drainer',
] as const;
/** More are fatal. */
const RESTARTS_MAX = 5;
/** One worker each, so that a crash hits the work in hand. */
const ONE_WORKER = ['--interop.put_workers=1', '--interop.read_workers=1', '--brownout.p95=1m'];
/** Of a streamed body, and of its chunks. */
const [STREAM_BYTES, CHUNK_BYTES] = [4 * MIB, 64 * KIB];
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
    assert.ok([200, 201, 503, 504].includes(reply.status), reply.text);
    return reply;
  }
}

test('[interop I-8] a put worker that is killed mid-stream answers 503 or 504 or cuts the client, and storage stores nothing', async (t) => {
  const node = await TestNode.start(t, {
    services: ['kms', 'passport', 'storage', 'interop'],
    inside: {},
    flags: { interop: ONE_WORKER },
  });
  const user = await node.user();
  const put = (body: Uint8Array): Promise<Reply> => node.send('POST', '/put', { headers: user, body });
  await eventually('an object is stored', async () => (await put(Buffer.from('first'))).status === 201);
  const receiving = (): Promise<number> => node.metric('storage', 'http_requests_inflight');
  await eventually('storage is idle', async () => (await receiving()) === 0);
  const { ingress, runtime } = node.interop;
  for (const [at, sent_bytes] of [3 * CHUNK_BYTES, STREAM_BYTES / 2, STREAM_BYTES].entries()) {
    const body = bytesOf(STREAM_BYTES, at + 1);
    const client = await RawClient.open(Number(new URL(node.url).port));
    client.head('POST', '/put', { ...user, 'Transfer-Encoding': 'chunked' });
    sendChunks(client, body.subarray(0, sent_bytes));
    await eventually('storage receives it', async () => (await receiving()) > 0);
    runtime.supervisor.kill('put_pool', 0);
    sendChunks(client, body.subarray(sent_bytes));
    client.write('0\r\n\r\n');
    // The rest of the body may break the connection after the answer.
    await eventually('the client is answered or cut', () => client.closed);
    const { received } = client;
    assert.match(received, /^(HTTP\/1\.1 50[34] |$)/);
    await eventually('the worker restarts', async () => (await restarts(node, 'put_pool')) === at + 1);
    for (let end = CHUNK_BYTES; end <= STREAM_BYTES; end += CHUNK_BYTES) {
      const { status } = await node.send('HEAD', `/o/${addressOf(body.subarray(0, end))}`);
      assert.equal(status, 404, `${end} bytes`);
    }
    assert.equal((await put(body)).status, 201);
    assert.equal(ingress.admission.inflight, 0, 'no request is left');
    t.diagnostic(`${sent_bytes} bytes: ${received.split('\r\n', 1)[0]}`);
  }
});

/** As the client of a body without a declared length. */
function sendChunks({ socket }: RawClient, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
    const chunk = bytes.subarray(at, at + CHUNK_BYTES);
    socket.write(`${chunk.length.toString(16)}\r\n`);
    socket.write(chunk);
    socket.write('\r\n');
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
