/** TLS, Unix sockets, and the addresses that a listener refuses. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, copyFile, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { request as parseSimpleGet } from 'node:http';
import { Agent, request } from 'node:https';
import { connect as connectPlain } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, type PeerCertificate, type TLSSocket } from 'node:tls';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createIngress, json, route } from '@ron/ingress';
import type { IngressConfig, Ingress, Route } from '@ron/ingress';
import { Metrics } from '@ron/telemetry';
import { eventually } from '@ron/testkit';
import { RawClient } from '@ron/testkit/service';
import { startService } from './support.ts';

let directory = '';
before(async () => void (directory = await mkdtemp(join(tmpdir(), 'ron-ingress-'))));
after(() => rm(directory, { recursive: true, force: true }));

function makeCertificate(name: string): { cert_file: string; key_file: string } {
  const cert_file = join(directory, `${name}.pem`);
  const key_file = join(directory, `${name}.key`);
  const args = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  execFileSync('openssl', [...args, '-subj', `/CN=${name}`, '-keyout', key_file, '-out', cert_file], {
    stdio: 'ignore',
  });
  return { cert_file, key_file };
}

function secureGet(
  url: string,
  path: string,
): Promise<{ status: number; headers: Record<string, unknown>; name: string }> {
  return new Promise((resolve, reject) => {
    const req = request(`${url}${path}`, { rejectUnauthorized: false, agent: new Agent() }, (res) => {
      const peer: PeerCertificate = (res.socket as TLSSocket).getPeerCertificate();
      res.resume();
      res.on('end', () => resolve({ status: res.statusCode!, headers: res.headers, name: String(peer.subject.CN) }));
    });
    req.on('error', reject);
    req.end();
  });
}

test('TLS: HSTS, the same limits, and a reload that keeps the old pair if the new one is invalid', async () => {
  const files = makeCertificate('first');
  await using service = await startService([], { tls: files, connection_limit_per_ip: 2 });
  assert.match(service.url, /^https:/);
  const first = await secureGet(service.url, '/greeting');
  assert.equal(first.status, 200);
  assert.equal(first.name, 'first');
  assert.equal(first.headers['strict-transport-security'], 'max-age=31536000');

  const second = makeCertificate('second');
  await copyFile(second.cert_file, files.cert_file);
  await assert.rejects(service.notes.ingress.reloadTls(), /cannot be used/, 'the key does not match');
  assert.equal((await secureGet(service.url, '/greeting')).name, 'first');
  await copyFile(second.key_file, files.key_file);
  await service.notes.ingress.reloadTls();
  assert.equal((await secureGet(service.url, '/greeting')).name, 'second');
  await eventually('nothing stays counted', () => service.notes.ingress.admission.connections === 0);
});

test('TLS: connections count from the first packet, before the handshake', async () => {
  await using service = await startService([], { tls: makeCertificate('count'), max_conns: 1, header_timeout_ms: 300 });
  const port = Number(new URL(service.url).port);
  const { admission } = service.notes.ingress;
  const silent = connect({ port, host: '127.0.0.1', rejectUnauthorized: false });
  await eventually('it counts', () => admission.connections === 1);
  await assert.rejects(secureGet(service.url, '/greeting'));
  assert.equal(await service.metric('rejected_total{reason="conns_max"}'), 1);
  silent.destroy();
  await eventually('it is gone', () => admission.connections === 0);
  assert.equal((await secureGet(service.url, '/greeting')).status, 200);
});

/** Connects, waits, and only then begins the handshake. */
async function secureLate(port: number, wait_ms: number): Promise<{ socket: TLSSocket; received: () => string }> {
  const plain = connectPlain(port, '127.0.0.1');
  await once(plain, 'connect');
  await sleep(wait_ms);
  const socket = connect({ socket: plain, rejectUnauthorized: false });
  let received = '';
  socket.setEncoding('latin1').on('data', (text: string) => (received += text));
  socket.on('error', () => undefined);
  await once(socket, 'secureConnect');
  return { socket, received: () => received };
}

test('TLS: the header timeout runs from the connect, and single bytes do not extend it', async () => {
  const limit_ms = 2000;
  const late_ms = 1200;
  await using service = await startService([], { tls: makeCertificate('drip'), header_timeout_ms: limit_ms });
  const from_ms = performance.now();
  const { socket, received } = await secureLate(Number(new URL(service.url).port), late_ms);
  const closed = once(socket, 'close').then(() => performance.now() - from_ms);
  socket.write('GET /greeting HTTP/1.1\r\nHost: localhost\r\nX-Slow: ');
  while (!socket.destroyed && !received().includes('request_timeout')) {
    socket.write('a');
    await sleep(50);
  }
  socket.end();
  const took_ms = await closed;
  assert.match(received(), /^HTTP\/1\.1 408 [^]*"code":"request_timeout"/);
  assert.ok(took_ms >= limit_ms * 0.9, `cut after ${took_ms} ms`);
  // From the handshake it would be at least 3200 ms.
  assert.ok(took_ms < late_ms + limit_ms * 0.95, `cut after ${took_ms} ms`);
  assert.equal(await service.metric('io_timeouts_total{op="header"}'), 1);
});

test('TLS: a quiet event stream carries comments', async () => {
  const tls = makeCertificate('beat');
  await using service = await startService([], { tls, events_heartbeat_ms: 50 });
  const { socket, received } = await secureLate(Number(new URL(service.url).port), 0);
  socket.write('GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await eventually('three comments came', () => /data: hello[^]*(?:3\r\n:\n\n\r\n){3}/.test(received()));
  socket.destroy();
});

test('TLS: a handshake that never ends is cut', async () => {
  await using service = await startService([], { tls: makeCertificate('slow'), header_timeout_ms: 100 });
  const socket = connectPlain(Number(new URL(service.url).port), '127.0.0.1');
  socket.on('error', () => undefined);
  await new Promise((resolve) => socket.once('close', resolve));
  await eventually('nothing stays counted', () => service.notes.ingress.admission.connections === 0);
});

test('TLS: a handshake that has not ended when the listener closes is cut', async () => {
  await using service = await startService([], { tls: makeCertificate('close'), header_timeout_ms: 60_000 });
  const { ingress } = service.notes;
  const client = await RawClient.open(Number(new URL(service.url).port));
  await eventually('it counts', () => ingress.admission.connections === 1);
  assert.deepEqual(await ingress.close(AbortSignal.timeout(5000)), { aborted: 0 });
  await eventually('nothing stays open', () => client.closed && ingress.admission.connections === 0);
});

test('TLS: connections over a Unix socket are distinguished', async () => {
  const path = join(directory, 'tls', 'notes.sock');
  await using service = await startService([], { tls: makeCertificate('unix'), bind: `unix:${path}` });
  const get = (): Promise<number> =>
    new Promise((resolve, reject) => {
      const init = { socketPath: path, path: '/greeting', rejectUnauthorized: false, agent: false };
      const req = request(init, (res) => {
        res.resume();
        resolve(res.statusCode!);
      });
      req.on('error', reject);
      req.end();
    });
  const statuses = await Promise.all(Array.from({ length: 8 }, get));
  assert.deepEqual(statuses, Array.from({ length: 8 }).fill(200));
  await eventually('nothing stays counted', () => service.notes.ingress.admission.connections === 0);
});

test('TLS: files that cannot be used stop the start', async () => {
  const files = { cert_file: join(directory, 'none.pem'), key_file: join(directory, 'none.key') };
  await assert.rejects(startService([], { tls: files }), /none\.pem and .*none\.key cannot be used/);
});

test('a Unix socket is 0600 in a directory of 0700; a stale one is replaced, a live one is not', async () => {
  const path = join(directory, 'run', 'notes.sock');
  const get = (): Promise<number> =>
    new Promise((resolve, reject) => {
      parseSimpleGet({ socketPath: path, path: '/greeting' }, (res) => {
        res.resume();
        resolve(res.statusCode!);
      })
        .on('error', reject)
        .end();
    });
  {
    await using service = await startService([], { bind: `unix:${path}` });
    assert.equal(service.url, `unix:${path}`);
    assert.equal((await stat(path)).mode & 0o777, 0o600);
    assert.equal((await stat(join(directory, 'run'))).mode & 0o777, 0o700);
    assert.equal(await get(), 200);
    await assert.rejects(startService([], { bind: `unix:${path}` }), /another process listens/);
    assert.equal(await get(), 200, 'the first is untouched');
  }
  const dies = `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`;
  spawnSync(process.execPath, ['-e', dies]);
  assert.ok((await stat(path)).isSocket(), 'a dead process left it behind');
  {
    await using service = await startService([], { bind: `unix:${path}` });
    assert.equal(await get(), 200, service.url);
  }
  await writeFile(path, 'no socket');
  await assert.rejects(startService([], { bind: `unix:${path}` }), /is not a socket/);
  await rm(path);
  await chmod(join(directory, 'run'), 0o755);
  await assert.rejects(startService([], { bind: `unix:${path}` }), /mode 0700/);
});

const open = route({
  method: 'GET',
  path: '/open',
  summary: 'Open to all.',
  scope: null,
  lane: 'inline',
  body: 'none',
  handler: () => json(200, {}),
});
const guarded: Route = { ...open, scope: 'storage:get' };
const refuse = { checkHeaders: () => ({ ok: false, code: 'unauthorized', reason: 'no' }) as const };

const make = (routes: readonly Route[], config: Partial<IngressConfig>): Promise<Ingress> =>
  createIngress({ service: 'x', version: '0', metrics: new Metrics('x'), routes, config, access: refuse });

test('open reads are not exposed beyond loopback unless configured', async () => {
  await assert.rejects(
    make([open], { bind: '0.0.0.0:0' }),
    /refusing to bind 0\.0\.0\.0: GET \/open .*open_beyond_loopback/,
  );
  await assert.rejects(make([open], { bind: '[::]:0' }), /refusing to bind ::/);
  for (const [routes, config] of [
    [[open], { bind: '0.0.0.0:0', open_beyond_loopback: true }],
    [[guarded], { bind: '0.0.0.0:0' }],
    [[open], { bind: '127.0.0.1:0' }],
  ] as const) {
    await using ingress = await make(routes, config);
    await ingress.listen();
  }
});

test('an inconsistent route table is refused at start', async () => {
  await assert.rejects(make([{ ...open, lane: 'nowhere' }], {}), /no queue serves the lane nowhere/);
  await assert.rejects(make([{ ...open, deadline: 'soon' }], {}), /no runtime declares the deadline soon/);
  await assert.rejects(make([{ ...guarded, access: 'health' }], {}), /a health route is inline, open/);
  const nobody = createIngress({ service: 'x', version: '0', metrics: new Metrics('x'), routes: [guarded] });
  await assert.rejects(nobody, /the listener has no capability checker/);
  const fast = { route: 'GET /other', lookup: () => undefined };
  const strange = createIngress({ service: 'x', version: '0', metrics: new Metrics('x'), routes: [open], fast });
  await assert.rejects(strange, /names GET \/other, which is not a route/);
  for (const bind of ['127.0.0.1', ':80', '1.2.3.4:99999', '[zz]:1', 'unix:']) {
    await assert.rejects(make([open], { bind }), /cannot bind/, bind);
  }
  await assert.rejects(make([open], { max_inflight: 0 }), /max_inflight must be a positive number/);
  await assert.rejects(make([open], { trusted_proxies: ['nobody'] }), /neither an address nor a CIDR block/);
});

test('a port in use is an error that names it', async () => {
  await using service = await startService();
  await using second = await make([open], { bind: `127.0.0.1:${service.port}` });
  await assert.rejects(second.listen(), /EADDRINUSE/);
});

test('users who hold all TCP connections do not lock out the callers of the private socket', async () => {
  const path = join(directory, 'locked', 'own.sock');
  await using service = await startService([], { socket: path, max_conns: 4 });
  const sockets = Array.from({ length: 4 }, () => connectPlain(Number(new URL(service.url).port), '127.0.0.1'));
  try {
    await Promise.all(sockets.map((socket) => once(socket, 'connect')));
    const refused = await fetch(`${service.url}/greeting`).then((answer) => answer.status);
    assert.equal(refused, 429);
    const status = await new Promise<number | undefined>((resolve, reject) => {
      const init = { socketPath: path, path: '/greeting', agent: false };
      const req = parseSimpleGet(init, (res) => resolve(res.resume().statusCode));
      req.on('error', reject).end();
    });
    assert.equal(status, 200);
  } finally {
    for (const socket of sockets) socket.destroy();
  }
});
