/** Any input sent as a capability is answered consistently, with a reason, and does no harm. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { attenuate, CAPABILITY_LIMITS, mint } from '@ron/auth';
import { addressOf, assertRefusal, RawClient } from '@ron/testkit/service';
import { FAST_PATH_OFF, startService, type TestService } from './support.ts';

const NEVER = new AbortController().signal;
const BODY = 'hello';

describe('capabilities under attack', () => {
  let service: TestService;
  let token: string;

  before(async () => {
    service = await startService();
    token = (await service.allow()).authorization.slice('Bearer '.length);
  });
  after(() => service[Symbol.asyncDispose]());

  /** A write with these header lines, as they are. */
  async function put(lines: string, path = '/o'): Promise<{ status: number; code: string; text: string }> {
    const client = await RawClient.open(service.port);
    const head = `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${BODY.length}\r\nConnection: close\r\n`;
    client.socket.write(`${head}${lines}\r\n${BODY}`, 'latin1');
    const text = await client.rest();
    const status = Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1]);
    return { status, code: /"code":"(\w+)"/.exec(text)?.[1] ?? '', text };
  }
  const bearer = (text: string): string => `Authorization: Bearer ${text}\r\n`;

  test('one header with the scheme in any case is accepted; any other form is not', async () => {
    for (const line of [bearer(token), `authorization: bearer ${token}\r\n`, `AUTHORIZATION: BEARER ${token}\r\n`]) {
      const { status, text } = await put(line);
      assert.ok(status === 200 || status === 201, text);
    }
    const refused: Record<string, string> = {
      none: '',
      empty: 'Authorization:\r\n',
      'the scheme alone': 'Authorization: Bearer\r\n',
      'no scheme': `Authorization: ${token}\r\n`,
      'another scheme': `Authorization: Basic ${token}\r\n`,
      'two spaces': `Authorization: Bearer  ${token}\r\n`,
      'a tab': `Authorization: Bearer\t${token}\r\n`,
      'a comma list': bearer(`${token}, Bearer ${token}`),
      quotes: bearer(`"${token}"`),
      padding: bearer(`${token}=`),
      'something behind it': bearer(`${token} x`),
      'percent signs': bearer(token.replace(/.$/, '%41')),
      'high bytes': bearer(`${token}\u00e9`),
    };
    for (const [name, line] of Object.entries(refused)) {
      const { status, code, text } = await put(line);
      assert.deepEqual([status, code], [401, 'unauthorized'], `${name}: ${text}`);
      assert.ok(!text.includes(token), name);
    }
  });

  test('trailing white space is not part of the capability', async () => {
    const { status, text } = await put(`Authorization: Bearer ${token} \t \r\n`);
    assert.ok(status === 200 || status === 201, text);
  });

  test('two capabilities are refused, even if one is valid', async () => {
    const other = attenuate(token, ['scopes in storage:get']);
    for (const lines of [bearer(token) + bearer(other), bearer(other) + bearer(token), bearer(token) + bearer(token)]) {
      const { status, code, text } = await put(lines);
      assert.deepEqual([status, code], [400, 'bad_request'], text);
    }
  });

  test('bytes that are illegal in headers end the connection', async () => {
    for (const byte of ['\u0000', '\u0001', '\u007f', '\n ', '\r ']) {
      const { status, text } = await put(bearer(`${token.slice(0, 20)}${byte}${token.slice(20)}`));
      assert.ok(status === 400 || status === 401, `${JSON.stringify(byte)}: ${text}`);
    }
  });

  test('a capability in the query or in a cookie is ignored, and not repeated', async () => {
    for (const query of [`?access_token=${token}`, `?authorization=Bearer%20${token}`, `?capability=${token}`]) {
      const { status, text } = await put('', `/o${query}`);
      assert.ok(status === 401 || status === 400, text);
      assert.ok(!text.includes(token));
    }
    assert.equal((await put(`Cookie: capability=${token}\r\n`)).status, 401);
  });

  test('huge ones, and floods of caveats, are refused before they cost anything', async () => {
    for (const size of [6000, 12_000]) assert.equal((await put(bearer('A'.repeat(size)))).status, 401);
    assert.equal((await put(bearer('A'.repeat(40_000)))).code, 'headers_too_large');
    const many = Array.from({ length: CAPABILITY_LIMITS.caveats_max - 3 }, () => 'bytes <= 100');
    assert.ok((await put(bearer(attenuate(token, many)))).status < 300, 'the maximum number of caveats, all equal');
    assert.throws(() => attenuate(token, [...many, 'bytes <= 100']), { code: 'validation' });
  });

  test('caveats in any order and number only restrict', async () => {
    const cases: [string[], number][] = [
      [['scopes in storage:put', 'scopes in storage:put'], 201],
      [['scopes in storage:get', 'scopes in storage:put'], 403],
      [['scopes in storage:put', 'scopes in storage:get'], 403],
      [[`expires < ${Date.now() + 60_000}`, `expires < ${Date.now() + 9e9}`], 201],
      [[`expires < ${Date.now() + 9e9}`, `expires < ${Date.now() - 1}`], 401],
      [['audience = storage'], 201],
      [['audience = kms'], 401],
      [['audience = kms', 'audience = storage'], 401],
      [['ip in 10.0.0.0/8'], 403],
      [['ip in 127.0.0.0/8', 'ip in 10.0.0.0/8'], 403],
      [['bytes <= 4'], 403],
      [['bytes <= 100', 'bytes <= 4'], 403],
      [['tenant = acme'], 403],
    ];
    for (const [caveats, expected] of cases) {
      const { status, text } = await put(bearer(attenuate(token, caveats)));
      assert.equal(status === 200 ? 201 : status, expected, `${caveats.join('; ')}: ${text}`);
    }
  });

  test('one of another service, another key, or with a caveat that was changed is refused, every time it is sent', async () => {
    const { storage } = service;
    const kms = await mint(storage.keys, { audience: 'kms', scopes: ['kms:sign'], ttl_ms: 60_000 }, NEVER);
    const bytes = Buffer.from(attenuate(token, ['bytes <= 4']), 'base64url');
    const forged = Buffer.from(bytes);
    forged[forged.indexOf('bytes <= 4') + 9] = '9'.charCodeAt(0);
    const cut = Buffer.concat([bytes.subarray(0, bytes.indexOf('bytes <= 4') - 2), bytes.subarray(-35)]);
    for (const bad of [kms.token, forged.toString('base64url'), cut.toString('base64url')]) {
      for (let again = 0; again < 3; again++) {
        const { status, code, text } = await put(bearer(bad));
        assert.deepEqual([status, code], [401, 'unauthorized'], text);
      }
    }
    assert.ok((await put(bearer(token))).status < 300, 'a valid one stays valid');
  });
});

test('until passport was polled, its capabilities get 503 on every path, and the service stays up', async () => {
  await using service = await startService({
    flags: ['--auth.reads=true', '--auth.passport_url=unix:/nonexistent/passport.sock'],
  });
  const root = await service.allow({ subject: 'root' });
  const path = `/o/${addressOf(Buffer.from(BODY))}`;
  assert.equal((await service.send('PUT', path, { body: BODY, headers: root })).status, 201);
  for (let again = 0; again < 3; again++) {
    assert.equal((await service.send('GET', path, { headers: root })).status, 200, 'the owner reads');
    const alice = await service.allow({ subject: 'alice' });
    for (let seen = 0; seen < 2; seen++) {
      assertRefusal(await service.send('GET', path, { headers: alice }), 503, 'not_ready');
      assertRefusal(await service.send('PUT', path, { body: BODY, headers: alice }), 503, 'not_ready');
    }
  }
});

test('a rate counts each request once, including the first one with a capability, on every path', async () => {
  for (const flags of [['--auth.reads=true'], ['--auth.reads=true', ...FAST_PATH_OFF]]) {
    await using service = await startService({ flags });
    const path = `/o/${addressOf(Buffer.from(BODY))}`;
    const owner = await service.allow();
    assert.equal((await service.send('PUT', path, { body: BODY, headers: owner })).status, 201);
    assert.equal((await service.send('GET', path, { headers: owner })).status, 200, 'from now on it is in RAM');
    for (const method of ['GET', 'HEAD']) {
      const headers = await service.allow({ caveats: ['rate <= 3/m'] });
      const statuses: number[] = [];
      for (let turn = 0; turn < 4; turn++) statuses.push((await service.send(method, path, { headers })).status);
      assert.deepEqual(statuses, [200, 200, 200, 429], `${method} ${flags.join(' ')}`);
    }
  }
});
