/** A server of the ingress benchmark, as a child process. Reports its CPU time over IPC on request. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createIngress, FastEntry, json, route } from '@ron/ingress';
import { Metrics } from '@ron/telemetry';
import { WorkQueue } from '@ron/kernel';
import { Type } from '@ron/ingress';

const HOT = '/o/b3:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef';
const body = Buffer.alloc(1024, 0x61);

/** A program on bare `node:http`: answers from memory, or reads, parses and answers JSON, without any checks. */
async function bare(): Promise<number> {
  const server = createServer({ keepAliveTimeout: 60_000, noDelay: true }, (req, res) => {
    if (req.method === 'POST') {
      const chunks: Buffer[] = [];
      req.on('data', (chunk: Buffer) => chunks.push(chunk));
      req.on('end', () => {
        const order = JSON.parse(Buffer.concat(chunks).toString()) as { name: string; tags: string[]; count: number };
        sendJson({ name: order.name, tags: order.tags, total: order.count + 1 });
      });
    } else if (req.url === HOT) {
      res.writeHead(200, { 'Content-Type': 'application/octet-stream', 'Content-Length': body.length });
      res.end(body);
    } else sendJson({ name: req.url!.slice(7), tags: ['a', 'b'], total: 7 });
    function sendJson(value: unknown): void {
      const text = JSON.stringify(value);
      res.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) });
      res.end(text);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

const Item = Type.Object(
  { name: Type.String(), tags: Type.Array(Type.String()), total: Type.Integer() },
  { additionalProperties: false },
);
const Order = Type.Object(
  {
    name: Type.String({ minLength: 1, maxLength: 64 }),
    tags: Type.Array(Type.String({ maxLength: 16 }), { maxItems: 8 }),
    count: Type.Integer({ minimum: 0, maximum: 1000 }),
  },
  { additionalProperties: false },
);

async function ingress(): Promise<number> {
  const queue = new WorkQueue('work', { capacity: 512, lanes: ['items'] });
  const forever = new AbortController().signal;
  for (let worker = 0; worker < 8; worker += 1) void work(queue, forever);
  const source = {
    size: body.length,
    etag: `"${HOT.slice(3)}"`,
    media_type: 'application/octet-stream',
    headers: { 'Cache-Control': 'public, max-age=31536000, immutable', Vary: 'Accept-Encoding' },
    ram: [body],
    async *read() {
      yield [body];
    },
  };
  const hot = new Map([[HOT, new FastEntry(source)]]);
  const params = Type.Object({ name: Type.String({ pattern: '^[a-z0-9-]{1,64}$' }) });
  const items = (lane: string) =>
    route({
      method: 'GET',
      path: lane === 'inline' ? '/items/:name' : '/queue/:name',
      summary: 'An item.',
      schema: { params, response: { 200: Item } },
      scope: null,
      lane,
      body: 'none',
      handler: ({ params: { name } }) => json(200, { name, tags: ['a', 'b'], total: 7 }),
    });
  const listener = await createIngress({
    service: 'bench',
    version: '0',
    metrics: new Metrics('bench'),
    // The benchmark of idle connections opens all of them from one address.
    config: { max_conns: 20_000, connection_limit_per_ip: 20_000, idle_timeout_ms: 600_000 },
    routes: [
      route({
        method: 'GET',
        path: '/o/:addr',
        summary: 'An object.',
        scope: null,
        lane: 'inline',
        body: 'none',
        handler: () => ({ kind: 'bytes', source }),
      }),
      items('inline'),
      items('items'),
      route({
        method: 'POST',
        path: '/items',
        summary: 'A new item.',
        schema: { body: Order, response: { 200: Item } },
        scope: null,
        lane: 'inline',
        body: 'buffered',
        handler: ({ body: order }) => json(200, { name: order.name, tags: order.tags, total: order.count + 1 }),
      }),
    ],
    lanes: { items: queue },
    fast: { route: 'GET /o/:addr', lookup: (target) => hot.get(target) },
  });
  return Number(new URL(await listener.listen()).port);
}

async function work(queue: WorkQueue, signal: AbortSignal): Promise<void> {
  for (let job = await queue.take(signal); job !== undefined; job = await queue.take(signal)) await job.run();
}

const port = process.argv[2] === 'bare' ? await bare() : await ingress();
let before = process.cpuUsage();
process.on('message', (order: 'start' | 'stop' | 'memory') => {
  if (order === 'memory') {
    globalThis.gc?.();
    process.send!({ rss_bytes: process.memoryUsage.rss() });
  } else if (order === 'start') {
    before = process.cpuUsage();
    process.send!({ started: true });
  } else {
    const { user, system } = process.cpuUsage(before);
    process.send!({ cpu_us: user + system, rss_bytes: process.memoryUsage.rss() });
  }
});
process.on('SIGINT', () => process.exit());
process.send!({ port });
