/** A listener that forwards to an upstream of the test. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { RequestListener } from 'node:http';
import { createServer as createTcpServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import type { TestContext } from 'node:test';
import { createIngress, ReverseProxy, route } from '@ron/ingress';
import type { Ingress, ReverseProxyInit, Upstream } from '@ron/ingress';
import { Metrics } from '@ron/telemetry';

export interface ProxyBench {
  readonly url: string;
  readonly port: number;
  readonly proxy: ReverseProxy;
  readonly ingress: Ingress;
  /** Connections that the upstream accepted. */
  readonly connections: Socket[];
}

/** A listener whose `/api/up/*` goes to `upstream`. */
export async function proxyBench(
  t: TestContext,
  upstream: RequestListener | Upstream | undefined,
  init: Partial<ReverseProxyInit> = {},
): Promise<ProxyBench> {
  const connections: Socket[] = [];
  const address = typeof upstream === 'function' ? await listenUpstream(t, upstream, connections) : upstream;
  const proxy = new ReverseProxy({ upstreams: { up: () => address }, ...init });
  const base = { scope: null, lane: 'inline', body: 'forward', summary: 'For a test.', path: '/api/:name/*' } as const;
  const rows = (['GET', 'PUT', 'DELETE'] as const).map((method) =>
    route({
      ...base,
      method,
      handler: ({ params }) => {
        const { name } = params as { name: string };
        return proxy.answer(name, { strip: `/api/${name}`, headers: { Authorization: 'Bearer of-the-service' } });
      },
    }),
  );
  const ingress = await createIngress({
    service: 'x',
    version: '0',
    metrics: new Metrics('x'),
    config: { sweep_ms: 20, read_timeout_ms: 150 },
    routes: rows,
  });
  const url = await ingress.listen();
  t.after(async () => {
    proxy.close();
    await ingress[Symbol.asyncDispose]();
  });
  return { url, port: Number(new URL(url).port), proxy, ingress, connections };
}

export async function listenUpstream(
  t: TestContext,
  listener: RequestListener,
  connections: Socket[],
): Promise<Upstream> {
  const server = createServer(listener);
  server.on('connection', (socket: Socket) => connections.push(socket));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    for (const socket of connections) socket.destroy();
    server.close();
  });
  return { host: '127.0.0.1', port: (server.address() as AddressInfo).port };
}

/** An upstream that answers each request with the bytes for its path. */
export async function rawUpstream(t: TestContext, answers: Readonly<Record<string, string>>): Promise<Upstream> {
  const server = createTcpServer((socket) => {
    t.after(() => socket.destroy());
    socket.on('error', () => undefined);
    socket.on('data', (data) => socket.write(answers[data.toString().split(' ')[1]!]!));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  return { host: '127.0.0.1', port: (server.address() as AddressInfo).port };
}
