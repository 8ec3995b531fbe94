import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { test } from 'node:test';
import { HOST, clientOf, get, hostile, ok, quiet, refused, text, until } from './support.ts';

const closing = (socket: { end(text: string): unknown }): unknown => socket.end(ok('hello', 'connection: close'));

/** Spellings of 127.0.0.1 and of other addresses of this machine, as an attacker would write them. */
const SPELLINGS = [
  '127.0.0.1',
  '127.1',
  '127.0.1',
  '2130706433',
  '0x7f000001',
  '0x7F.1',
  '017700000001',
  '0177.0.0.01',
  '0x7f.0x0.0x0.0x1',
  '127.0.0.1.',
  '%31%32%37.0.0.1',
  '１２７.０.０.１',
  '127。0。0。1',
  '①②⑦.0.0.1',
  '[::1]',
  '[0:0:0:0:0:0:0:1]',
  '[::ffff:127.0.0.1]',
  '[::ffff:7f00:1]',
  '[::127.0.0.1]',
  '[64:ff9b::127.0.0.1]',
  '[2002:7f00:1::]',
  '[fe80::1%25lo]',
  '[fe80::1%lo]',
  '0.0.0.0',
  '0',
  '[::]',
  'localhost',
  'localhost.',
  '169.254.169.254',
  '[fd00:ec2::254]',
];

test('no spelling of a local address is dialled', async () => {
  await using server = await hostile(closing);
  await using egress = clientOf(server, { networks: [], lookup: async () => ['127.0.0.1', '::1'] });
  for (const spelling of SPELLINGS) {
    const outcome = await get(egress, `https://${spelling}:${server.port}/`).then(
      () => 'an answer',
      (error: { code: string }) => error.code,
    );
    assert.ok(['reject_policy', 'validation'].includes(outcome), `${spelling}: ${outcome}`);
  }
  assert.equal(server.accepted(), 0);
  assert.equal(egress.outcomes.policy, SPELLINGS.length);
});

test('every spelling of an opened address reaches it, in one canonical form', async () => {
  await using server = await hostile((socket) => socket.write(ok()));
  await using egress = clientOf(server, { networks: ['127.0.0.1/32'] });
  for (const spelling of [
    '127.0.0.1',
    '127.1',
    '2130706433',
    '0x7f000001',
    '017700000001',
    '127.0.0.1.',
    '１２７.0.0.1',
  ])
    assert.equal((await get(egress, `https://${spelling}:${server.port}/`)).peer.address, '127.0.0.1');
  await quiet(egress);
  assert.equal(server.accepted(), 1, 'one origin has one connection');
});

test('a name that changes its address is checked at every dial, and resolved once per dial', async () => {
  await using good = await hostile(closing);
  await using evil = await hostile(closing, { port: good.port, host: '127.0.0.2' });
  const answers = [['127.0.0.1'], ['127.0.0.2'], ['127.0.0.1'], ['127.0.0.2', '::1'], ['127.0.0.2', '127.0.0.1']];
  let lookups = 0;
  const lookup = async (): Promise<string[]> => answers[lookups++]!;
  await using egress = clientOf(good, { networks: ['127.0.0.1/32'], lookup });
  const outcomes: string[] = [];
  for (let call = 0; call < answers.length; call++) {
    const work = get(egress, good.url).then(
      ({ body }) => text(body),
      (error: { code: string }) => error.code,
    );
    outcomes.push(await work);
    await quiet(egress);
  }
  assert.deepEqual(outcomes, ['hello', 'reject_policy', 'hello', 'reject_policy', 'hello']);
  assert.deepEqual([lookups, good.accepted(), evil.accepted()], [5, 3, 0]);
});

test('the address of the connected socket is checked before a byte is sent', async () => {
  await using server = await hostile(closing);
  const init = {
    networks: ['127.0.0.9/32'],
    lookup: async () => ['127.0.0.9'],
    // As if something between the check and the connection had changed its destination.
    connect: () => connect({ host: '127.0.0.1', port: server.port }),
  };
  await using egress = clientOf(server, init);
  await refused(get(egress, server.url), 'reject_policy', 'address');
  await until(() => server.accepted() === 1 && server.open() === 0);
  assert.equal(server.wire_bytes(), 0);
});

test('answers of the resolver that are not addresses are refused', async () => {
  await using server = await hostile(closing);
  for (const answer of ['', 'localhost', '127.1', '0x7f000001', 'fe80::1%lo', '127.0.0.1 ', '[::1]']) {
    await using egress = clientOf(server, { lookup: async () => [answer] });
    await refused(get(egress, server.url), 'reject_policy', 'address');
  }
  await using none = clientOf(server, { lookup: async () => [] });
  await refused(get(none, server.url), 'unreachable', 'egress_dns');
  await using broken = clientOf(server, { lookup: () => assert.fail('broken') });
  await refused(get(broken, server.url), 'unreachable', 'egress_dns');
  await refused(get(broken, server.url), 'unreachable', 'egress_dns');
  assert.equal(server.accepted(), 0);
});

test('the next address is tried when one does not answer', async () => {
  await using server = await hostile(closing);
  // Nothing listens on these two.
  await using egress = clientOf(server, { lookup: async () => ['127.0.0.7', '127.0.0.8', '127.0.0.1'] });
  assert.equal((await get(egress, server.url)).peer.address, '127.0.0.1');
  await using bounded = clientOf(server, {
    lookup: async () => ['127.0.0.7', '127.0.0.8', '127.0.0.1'],
    limits: { addresses_max: 2 },
  });
  await refused(get(bounded, server.url), 'unreachable', 'egress_connect');
});

test('schemes and ports are allow-listed, plain HTTP goes only to opened networks', async () => {
  await using server = await hostile(closing, { tls: 'plain' });
  await using strict = clientOf(server);
  await refused(get(strict, server.url), 'reject_policy', 'scheme');
  await refused(get(strict, `https://${HOST}:${server.port + 1}/`), 'reject_policy', 'port');
  await refused(get(strict, `https://${HOST}/`), 'reject_policy', 'port');
  await refused(get(strict, `https://user:secret@${HOST}:${server.port}/`), 'reject_policy', 'credentials');
  for (const url of [
    '',
    'junk',
    '//x',
    'https://',
    `https://${HOST}:${server.port}/a b`,
    `https:\\\\${HOST}`,
    `https://a..b:${server.port}/`,
  ])
    await refused(get(strict, url), 'validation');
  for (const url of ['ftp://x/', 'file:///etc/passwd', 'data:,x', 'unix:/run/x', 'javascript:1', 'blob:https://x/y'])
    await refused(get(strict, url), 'reject_policy', 'scheme');
  await using opened = clientOf(server, { schemes: ['https', 'http'] });
  assert.equal(text((await get(opened, server.url)).body), 'hello');
  await using open = clientOf(server, {
    schemes: ['http'],
    networks: [],
    lookup: async () => ['93.184.216.34'],
    connect: () => assert.fail('nothing is dialled'),
  });
  await refused(get(open, server.url), 'reject_policy', 'plain_http');
});

test('proxies of the environment are not used', async () => {
  await using server = await hostile(closing);
  await using proxy = await hostile(closing, { tls: 'plain' });
  const names = ['HTTP_PROXY', 'HTTPS_PROXY', 'http_proxy', 'https_proxy', 'ALL_PROXY', 'NODE_USE_ENV_PROXY'];
  for (const name of names) process.env[name] = name === 'NODE_USE_ENV_PROXY' ? '1' : `http://127.0.0.1:${proxy.port}`;
  try {
    await using egress = clientOf(server);
    assert.equal(text((await get(egress, server.url)).body), 'hello');
    assert.equal(proxy.accepted(), 0);
  } finally {
    for (const name of names) delete process.env[name];
  }
});
