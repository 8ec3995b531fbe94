/**
 * The smallest service that has everything a process can meet: a listener, a queue with workers, tasks that crash when
 * a key requests it, work that ends only when it is aborted. `process.test.ts` runs it as a child process.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { defineConfig, key } from '@ron/config';
import { isRonError, sleep, type WorkQueue } from '@ron/kernel';
import { declareConcurrency, PROCESS_KEYS, runProcess, ServiceRuntime, type Service } from '../src/index.ts';

const schema = defineConfig({
  ...PROCESS_KEYS,
  'server.max_inflight': key.integer({ default: 512, min: 1, max: 1024, doc: 'Requests at a time.', reloadable: true }),
  port: key.integer({ default: 0, max: 65_535, doc: 'Where to listen.' }),
  crash_after: key.duration({ default: '0ms', doc: 'When the critical task crashes, again and again; 0: never.' }),
  start_delay: key.duration({ default: '0ms', doc: 'How long the start takes.' }),
  reject_later: key.boolean({ default: false, doc: 'Leaves a rejection unhandled.' }),
  drain_forever: key.boolean({ default: false, doc: 'Breaks the promise that a drain ends.' }),
});

const concurrency = declareConcurrency({
  service: 'tiny',
  restarts: { max: 2, window_ms: 60_000 },
  channels: { work: { kind: 'work', capacity: 2, lanes: ['get'], from: 'listener', to: 'pool' } },
  tasks: {
    pool: { count: 1, criticality: 'critical', does: 'serves' },
    flapper: { count: 1, criticality: 'critical', does: 'crashes when told to' },
  },
  locks: {},
  deadlines: { request: { ms: 60_000, covers: 'one request' } },
});

type Runtime = ServiceRuntime<typeof concurrency>;

async function answer(runtime: Runtime, queue: WorkQueue, req: IncomingMessage, res: ServerResponse): Promise<void> {
  runtime.log.debug({ url: req.url }, 'asked');
  if (req.url === '/metrics') return void res.end(await runtime.metrics.text());
  const work_ms = Number(new URL(req.url ?? '/', 'http://x').searchParams.get('ms') ?? 0);
  using deadline = runtime.deadline('request');
  try {
    await queue.submit('get', deadline, ({ signal }) => {
      runtime.log.info({ work_ms }, 'work began');
      return sleep(work_ms, signal);
    });
    res.setHeader('connection', 'close').end('done');
  } catch (error) {
    res.writeHead(isRonError(error) ? error.status : 500, { connection: 'close' }).end(String(error));
  }
}

function listening(server: Server, port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', () => resolve(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
  });
}

await runProcess({
  name: 'tiny',
  schema,
  stop_ms_max: 2000,
  ...(process.env['TINY_NODE_VERSION'] === undefined ? {} : { node_version: process.env['TINY_NODE_VERSION'] }),
  async start({ config, source, env, log, metrics, signal, onFatal }): Promise<Service> {
    log.info({ given: env['RON_KEK'] !== undefined, kept: 'RON_KEK' in process.env }, 'environment');
    if (config.start_delay > 0) await sleep(config.start_delay, signal);
    const runtime = new ServiceRuntime(concurrency, { metrics, log, config: source, onFatal });
    const queue = runtime.workQueue('work');
    runtime.spawn('pool', async (ctx) => {
      for (let job = await queue.take(ctx.signal); job !== undefined; job = await queue.take(ctx.signal)) {
        await job.run(ctx.signal);
      }
    });
    runtime.spawn('flapper', async (ctx) => {
      if (config.crash_after > 0) await sleep(config.crash_after, ctx.stopping);
      if (config.crash_after > 0) throw new Error('flapped');
      await new Promise((resolve) => ctx.stopping.addEventListener('abort', resolve));
    });
    const server = createServer((req, res) => void answer(runtime, queue, req, res));
    const url = await listening(server, config.port);
    if (config.reject_later) void Promise.reject(new Error('this rejection is not handled'));
    return {
      url,
      async drain() {
        const report = await runtime.stop({ drain_ms: source.value.drain_deadline });
        log.info({ ...report }, 'drained');
        const closed = new Promise((resolve) => server.close(resolve));
        server.closeIdleConnections();
        await (source.value.drain_forever ? new Promise(() => {}) : closed);
      },
      async abort() {
        await runtime.stop({ drain_ms: 0 });
        server.close();
        server.closeAllConnections();
        // Longer than the drain that it ends: the exit code must still be that of the abort.
        await sleep(100, AbortSignal.timeout(1000));
      },
    };
  },
});
