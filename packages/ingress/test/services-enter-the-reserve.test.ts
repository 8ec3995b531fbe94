/** A service of this node is served even if all open permits are taken, and even on a new connection. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { serviceSubject } from '@ron/auth';
import { json, route } from '@ron/ingress';
import type { AccessCheck } from '@ron/proto';
import { capability, startIngress, startService } from './support.ts';
import { eventually } from '@ron/testkit';
import { RawClient } from '@ron/testkit/service';
import type { TestService } from './support.ts';

const LIMITS = { max_inflight: 8, inflight_reserve: 2, inflight_per_ip_max: 3, request_deadline_ms: 60_000 };
const SERVICE = capability({ subject: serviceSubject('edge') }).authorization;
const USER = capability().authorization;
/** The capability of a service with an invalid signature. */
const FORGED = SERVICE.slice(0, -6) + (SERVICE.endsWith('AAAAAA') ? 'BBBBBB' : 'AAAAAA');

/** One request on a new connection. `/admin/refuse` answers 403 after the request was admitted. */
async function ask(port: number, address: string, path: string, more = ''): Promise<RawClient> {
  const client = await RawClient.open(port, address);
  client.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n${more}\r\n`);
  return client;
}

async function answered(service: TestService, address: string, path: string, authorization: string): Promise<string> {
  const client = await ask(service.port, address, path, `Authorization: ${authorization}\r\n`);
  const [, status, code] = await client.until(/^HTTP\/1\.1 (\d{3})[^]*"code":"(\w+)"/);
  client.destroy();
  return `${status} ${code}`;
}

async function hold(service: TestService, addresses: readonly string[]): Promise<RawClient[]> {
  const { admission } = service.notes.ingress;
  const all = await Promise.all(addresses.map((address) => ask(service.port, address, '/inline/60000')));
  await eventually('all are held', () => admission.inflight === addresses.length);
  return all;
}

test('when open permits are taken, a new connection of a service is served; a user, a forger and an open route are not', async () => {
  await using service = await startService([], LIMITS);
  const held = await hold(
    service,
    [2, 2, 2, 3, 3, 3].map((n) => `127.0.0.${n}`),
  );
  const from = '127.0.0.4';
  for (let n = 0; n < 3; n += 1) {
    assert.equal(await answered(service, from, '/admin/refuse', SERVICE), '403 forbidden');
    assert.equal(await answered(service, from, '/admin/refuse', USER), '429 inflight_limit');
    assert.equal(await answered(service, from, '/admin/refuse', FORGED), '429 inflight_limit');
    assert.equal(await answered(service, from, '/admin/refuse', 'Bearer nonsense'), '429 inflight_limit');
    assert.equal(await answered(service, from, '/greeting', SERVICE), '429 inflight_limit');
  }
  assert.equal(service.notes.ingress.admission.inflight, 6);
  for (const client of held) client.destroy();
  await eventually('nothing is left', () => service.notes.ingress.admission.addresses === 0);
});

test('when the share of an address is taken, a service at that address is served, a user is not', async () => {
  await using service = await startService([], LIMITS);
  const from = '127.0.0.2';
  const held = await hold(service, [from, from, from]);
  assert.equal(await answered(service, from, '/admin/refuse', SERVICE), '403 forbidden');
  assert.equal(await answered(service, from, '/admin/refuse', USER), '429 address_limit');
  for (const client of held) client.destroy();
  await eventually('nothing is left', () => service.notes.ingress.admission.addresses === 0);
});

test('when the reserve is taken too, a service is refused', async () => {
  await using service = await startService([], { ...LIMITS, inflight_reserve: 1, max_inflight: 4 });
  const held = await hold(service, ['127.0.0.2', '127.0.0.2', '127.0.0.3']);
  const client = await RawClient.open(service.port, '127.0.0.4');
  const get = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${SERVICE}\r\n\r\n`;
  client.write(get('/admin/refuse'));
  await client.until(/403/);
  client.write(get('/inline/60000'));
  await eventually('the last permit is taken', () => service.notes.ingress.admission.inflight === 4);
  assert.equal(await answered(service, '127.0.0.4', '/admin/refuse', SERVICE), '429 inflight_limit');
  for (const one of [...held, client]) one.destroy();
});

test('the number of concurrent checks is limited, in total and per address; the others are refused unchecked', async () => {
  let checks = 0;
  const access: AccessCheck = {
    checkHeaders: (_request, signal) => {
      checks += 1;
      return new Promise((_resolve, reject) => {
        signal.addEventListener('abort', reject);
      });
    },
  };
  const base = { method: 'GET', lane: 'inline', body: 'none', summary: 'For a test.' } as const;
  const never = route({ ...base, path: '/held', scope: null, handler: () => new Promise(() => undefined) });
  const row = route({ ...base, path: '/a', scope: 'x:get', handler: () => json(200, {}) });
  const config = { max_inflight: 2, inflight_reserve: 1, request_deadline_ms: 60_000 };
  await using x = await startIngress({ routes: [never, row], access, config });
  const held = await ask(x.port, '127.0.0.9', '/held');
  await eventually('the open permit is taken', () => x.ingress.admission.inflight === 1);
  const flood = async (address: string): Promise<RawClient[]> =>
    await Promise.all(Array.from({ length: 10 }, () => ask(x.port, address, '/a', 'Authorization: Bearer x\r\n')));
  const one = await flood('127.0.0.2');
  await eventually('the rest is refused', () => one.filter((client) => client.received !== '').length === 6);
  assert.equal(checks, 4);
  const two = await flood('127.0.0.3');
  const three = await flood('127.0.0.4');
  await eventually('the rest is refused', () => three.every((client) => client.received.includes('inflight_limit')));
  assert.equal(checks, 8);
  for (const client of [...one, ...two, ...three]) client.destroy();
  await eventually('slots are released', async () => {
    const again = await ask(x.port, '127.0.0.5', '/a', 'Authorization: Bearer x\r\n');
    await eventually('it is checked or refused', () => checks === 9 || again.received !== '');
    again.destroy();
    return checks === 9;
  });
  held.destroy();
});

test('the capability of a service behind a trusted proxy does not open the reserve to the connection of the proxy', async () => {
  await using service = await startService([], { ...LIMITS, trusted_proxies: ['127.0.0.9'] });
  const proxy = await RawClient.open(service.port, '127.0.0.9');
  const get = (path: string, ip: string, more = ''): string =>
    `GET ${path} HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: ${ip}\r\n${more}\r\n`;
  proxy.write(get('/admin/refuse', '192.0.2.1', `Authorization: ${SERVICE}\r\n`));
  await proxy.until(/403/);
  const held = await hold(
    service,
    [2, 2, 2, 3, 3, 3].map((n) => `127.0.0.${n}`),
  );
  proxy.write(get('/greeting', '192.0.2.2'));
  await proxy.until(/"code":"inflight_limit"/);
  for (const client of [...held, proxy]) client.destroy();
});
