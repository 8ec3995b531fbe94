/** A service that opens a lot of data answers probes meanwhile, and no connection is refused when it takes over. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Metrics } from '@ron/telemetry';
import { createIngress, StartingListener } from '@ron/ingress';
import { eventually } from '@ron/testkit';
import { RawClient, send } from '@ron/testkit/service';

const BIND = '127.0.0.1:0';

test('healthz answers while the service starts, everything else is refused with Retry-After', async () => {
  await using starting = await StartingListener.open({ bind: BIND });
  const url = `http://127.0.0.1:${starting.portOf('bind')}`;
  const health = await fetch(`${url}/healthz`);
  assert.equal(health.status, 200);
  assert.deepEqual(await health.json(), { status: 'ok', starting: true });
  for (const path of ['/readyz', '/o/b3:00', '/healthz?x']) {
    const refused = await fetch(`${url}${path}`);
    assert.equal(refused.status, 503, path);
    assert.match(refused.headers.get('retry-after') ?? '', /^[1-9]\d*$/);
    assert.equal(((await refused.json()) as { code: string }).code, 'not_ready');
  }
  assert.equal((await fetch(`${url}/healthz`, { method: 'HEAD' })).status, 200);
  assert.equal((await fetch(`${url}/healthz`, { method: 'POST', body: 'x' })).status, 503);
});

test('the guards apply while the service starts', async () => {
  await using starting = await StartingListener.open({ bind: BIND });
  const url = `http://127.0.0.1:${starting.portOf('bind')}`;
  const answers: [status: number, method: string, path: string, headers: Record<string, string>][] = [
    [421, 'GET', '/healthz', { host: 'evil.example' }],
    [421, 'GET', 'http://evil.example/healthz', {}],
    [200, 'GET', 'http://localhost/healthz', { host: 'evil.example' }],
    [400, 'GET', '//healthz', {}],
    [400, 'GET', '/x/../healthz', {}],
  ];
  for (const [status, method, path, headers] of answers)
    assert.equal((await send(url, method, path, { headers })).status, status, `${method} ${path}`);
});

test('the service takes over the socket: probes never see a refused connection, and the port stays', async () => {
  const starting = await StartingListener.open({ bind: BIND });
  const port = starting.portOf('bind');
  const ingress = await createIngress({
    service: 'probe',
    version: '0',
    metrics: new Metrics('probe'),
    config: { bind: BIND },
    routes: [],
  });
  const over = new AbortController();
  const answers: string[] = [];
  const probing = (async () => {
    while (!over.signal.aborted) {
      const answer = await fetch(`http://127.0.0.1:${port}/healthz`).then(
        (response) => response.text().then((text) => `${response.status} ${text}`),
        (error: Error & { cause?: { code?: string } }) => error.cause?.code ?? error.message,
      );
      answers.push(answer);
    }
  })();
  while (answers.length < 5) await new Promise((resolve) => void setImmediate(resolve));
  assert.equal(new URL(await ingress.listen(starting)).port, String(port));
  const before = answers.length;
  while (answers.length < before + 5) await new Promise((resolve) => void setImmediate(resolve));
  over.abort();
  await probing;
  assert.equal(starting.portOf('bind'), undefined, 'it has nothing left to close');
  assert.ok(!answers.includes('ECONNREFUSED'), answers.join('\n'));
  assert.match(answers[0]!, /"starting":true/);
  assert.match(answers.at(-1)!, /^200 /);
  assert.doesNotMatch(answers.at(-1)!, /starting/);
  await ingress.close(AbortSignal.abort());
});

test('clients that send no request hold a connection only until the header timeout', async () => {
  await using starting = await StartingListener.open({ bind: BIND, header_timeout_ms: 500 });
  const port = starting.portOf('bind')!;
  const silent = await Promise.all(Array.from({ length: 64 }, () => RawClient.open(port)));
  for (const client of silent.slice(32)) client.write('GET /healthz HTTP/1.1\r\n');
  await eventually('all are cut', () => silent.every(({ closed }) => closed));
  assert.equal((await send(`http://127.0.0.1:${port}`, 'GET', '/healthz')).status, 200);
});

test('an address in use fails the start with the reason', async () => {
  await using first = await StartingListener.open({ bind: BIND });
  await assert.rejects(
    StartingListener.open({ bind: `127.0.0.1:${first.portOf('bind')}` }),
    /cannot listen.*EADDRINUSE/,
  );
});

test('two addresses with the same text have a listener each, and both are closed', async () => {
  const starting = await StartingListener.open({ bind: BIND, metrics_addr: BIND });
  const ports = [starting.portOf('bind')!, starting.portOf('metrics_addr')!];
  assert.notEqual(ports[0], ports[1]);
  starting.close();
  for (const port of ports) await assert.rejects(fetch(`http://127.0.0.1:${port}/healthz`));
});
