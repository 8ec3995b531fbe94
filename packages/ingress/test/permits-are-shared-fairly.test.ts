/** Requests count for their address, and only internal callers may use the reserve. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { serviceSubject } from '@ron/auth';
import { eventually } from '@ron/testkit';
import { RawClient } from '@ron/testkit/service';
import { capability, startService } from './support.ts';
import type { TestService } from './support.ts';

const get = (path: string, more = ''): string => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n${more}\r\n`;

/** A connection that sends one request. */
async function ask(service: TestService, address: string | undefined, path: string, more = ''): Promise<RawClient> {
  const client = await RawClient.open(service.port, address);
  client.write(get(path, more));
  return client;
}

async function hold(service: TestService, count: number, addresses: readonly string[]): Promise<RawClient[]> {
  const { admission } = service.notes.ingress;
  const before = admission.inflight;
  const all = await Promise.all(
    Array.from({ length: count }, (_unused, n) => ask(service, addresses[n % addresses.length], '/inline/60000')),
  );
  await eventually('all are held', () => admission.inflight === before + count);
  return all;
}

const LIMITS = { max_inflight: 8, inflight_reserve: 2, inflight_per_ip_max: 4, request_deadline_ms: 60_000 };

test('one address is refused at its share with its own code; another one is served', async () => {
  await using service = await startService([], LIMITS);
  const held = await hold(service, 4, ['127.0.0.2']);
  const refused = await ask(service, '127.0.0.2', '/inline/0');
  await refused.until(/HTTP\/1\.1 429 [^]*retry-after: \d+[^]*"code":"address_limit"/i);
  const other = await ask(service, '127.0.0.3', '/inline/0');
  await other.until(/200 OK/);
  assert.equal(await service.metric('rejected_total{reason="address_limit"}'), 1);
  for (const client of [...held, refused, other]) client.destroy();
  await eventually('nothing is left', () => service.notes.ingress.admission.addresses === 0);
});

test('a request that waits in a queue counts for its address', async () => {
  await using service = await startService(['--notes.workers=1'], LIMITS);
  const held = await Promise.all([1, 2, 3, 4].map(() => ask(service, '127.0.0.2', '/slow/20000')));
  await eventually('three wait', async () => (await service.metric('queue_depth{queue="work"}')) === 3);
  const refused = await ask(service, '127.0.0.2', '/inline/0');
  await refused.until(/"code":"address_limit"/);
  for (const client of [...held, refused]) client.destroy();
  await eventually('nothing is left', () => service.notes.ingress.admission.addresses === 0);
});

test('each address has its own rate: one is refused, another is not', async () => {
  await using service = await startService([], { rps_limit_per_ip: 0.1, rps_burst_per_ip: 2 });
  const one = await RawClient.open(service.port, '127.0.0.2');
  for (const pattern of [/(?:200 OK[^]*){1}/, /(?:200 OK[^]*){2}/, /429 [^]*"code":"address_rate_limited"/]) {
    one.write(get('/greeting'));
    await one.until(pattern);
  }
  assert.ok(Number(/retry-after: (\d+)/i.exec(one.received)![1]) >= 9, 'as long as the next token takes');
  const other = await ask(service, '127.0.0.3', '/greeting');
  await other.until(/200 OK/);
  for (const client of [one, other]) client.destroy();
});

test('the reserve is open to a service of this node that presented its capability, but not to a user', async () => {
  await using service = await startService([], LIMITS);
  const user = await ask(service, undefined, '/admin/refuse', `Authorization: ${capability().authorization}\r\n`);
  await user.until(/403/);
  const internal = capability({ subject: serviceSubject('edge') }).authorization;
  const peer = await ask(service, undefined, '/admin/refuse', `Authorization: ${internal}\r\n`);
  await peer.until(/403/);
  const held = await hold(service, 6, ['127.0.0.2', '127.0.0.3']);
  user.write(get('/inline/0'));
  await user.until(/"code":"inflight_limit"/);
  peer.write(get('/inline/0'));
  await peer.until(/200 OK/);
  for (const client of [...held, user, peer]) client.destroy();
});

test('a service of this node is not limited by the share of its address', async () => {
  await using service = await startService([], { ...LIMITS, inflight_per_ip_max: 1 });
  const internal = capability({ subject: serviceSubject('edge') }).authorization;
  const peers = [];
  for (let n = 0; n < 3; n += 1) {
    const peer = await ask(service, '127.0.0.2', '/admin/refuse', `Authorization: ${internal}\r\n`);
    await peer.until(/403/);
    peers.push(peer);
  }
  for (const peer of peers) peer.write(get('/inline/60000'));
  await eventually('all execute', () => service.notes.ingress.admission.inflight === 3);
  for (const peer of peers) peer.destroy();
});

test('clients behind a trusted proxy are distinguished by the address that it forwards', async () => {
  await using service = await startService([], { ...LIMITS, trusted_proxies: ['127.0.0.9'] });
  const from = (client: string): string => `X-Forwarded-For: ${client}\r\n`;
  const held = [];
  for (let n = 0; n < 4; n += 1) held.push(await ask(service, '127.0.0.9', '/inline/60000', from('192.0.2.1')));
  await eventually('all are held', () => service.notes.ingress.admission.inflight === 4);
  const refused = await ask(service, '127.0.0.9', '/inline/0', from('192.0.2.1'));
  await refused.until(/"code":"address_limit"/);
  const other = await ask(service, '127.0.0.9', '/inline/0', from('192.0.2.2'));
  await other.until(/200 OK/);
  for (const client of [...held, refused, other]) client.destroy();
  await eventually('nothing is left', () => service.notes.ingress.admission.addresses === 0);
});

for (const trusted_proxies of [[], ['192.0.2.1']]) {
  const name = `peers of a Unix socket are not counted per address, with ${trusted_proxies.length} trusted proxies`;
  test(`${name}, and may use the reserve`, async () => {
    const dir = await mkdtemp(join(tmpdir(), 'ron-places-'));
    const socketPath = join(dir, 's', 'socket');
    const limits = { ...LIMITS, inflight_per_ip_max: 1, trusted_proxies };
    await using service = await startService([], { ...limits, bind: `unix:${socketPath}` });
    const { admission } = service.notes.ingress;
    const headers = { 'x-forwarded-for': '192.0.2.7' };
    const requests = Array.from({ length: 8 }, () => {
      const req = request({ socketPath, path: '/inline/60000', agent: false, headers });
      req.on('error', () => undefined);
      req.end();
      return req;
    });
    await eventually('all permits are taken', () => admission.inflight === 8);
    assert.equal(admission.addresses, 0);
    for (const req of requests) req.destroy();
    await eventually('all permits are free', () => admission.inflight === 0);
    await rm(dir, { recursive: true });
  });
}
