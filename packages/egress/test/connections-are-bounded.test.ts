import assert from 'node:assert/strict';
import { connect, type Socket } from 'node:net';
import { test } from 'node:test';
import type { EgressInit } from '../src/index.ts';
import { clientOf, get, HOST, hostile, never, ok, quiet, refused, text, until } from './support.ts';

const settled = (work: Promise<{ body: Uint8Array }>): Promise<string> =>
  work.then(
    ({ body }) => text(body),
    (error: { code: string }) => error.code,
  );

/** The server, as if it had a public address. */
const stranger = ({ port }: { port: number }): Partial<EgressInit> => ({
  networks: [],
  lookup: async () => ['93.184.216.34'],
  connect: () =>
    Object.defineProperty(connect({ host: '127.0.0.1', port }), 'remoteAddress', { value: '93.184.216.34' }),
});

test('connections in use are bounded per origin and in total, waiters as well, the rest is busy', async () => {
  const held: Socket[] = [];
  await using server = await hostile((socket) => void held.push(socket));
  const limits = { sockets_per_origin: 2, sockets_max: 3, waiting_max: 4 };
  await using egress = clientOf(server, { limits });
  const other = `https://127.0.0.1:${server.port}/`;
  const work = [server.url, server.url, server.url, other, other, other].map((url) => settled(get(egress, url)));
  await until(() => held.length === 3);
  assert.deepEqual(egress.connections, { used: 3, idle: 0, waiting: 3 });
  work.push(settled(get(egress, other)), settled(get(egress, other)));
  assert.equal(await work[7], 'busy');
  assert.equal(server.accepted(), 3);
  while (egress.connections.used > 0) {
    held.splice(0).forEach((socket) => void socket.write(ok()));
    await until(() => held.length > 0 || egress.connections.used === 0);
    assert.ok(egress.connections.used <= 3);
  }
  assert.deepEqual(await Promise.all(work), [...Array<string>(7).fill('hello'), 'busy']);
  assert.ok(server.accepted() < 7, 'connections were reused');
});

test('calls to more servers than there are slots and waiters are busy, and counted as that', async () => {
  await using server = await hostile(() => undefined);
  const lookup = (): Promise<never> => new Promise(() => undefined);
  const limits = { sockets_max: 4, waiting_max: 8, breakers_max: 1 };
  await using egress = clientOf(server, { lookup, limits });
  // All of them in one turn of the event loop: none has been refused when the last one begins.
  const work = Array.from({ length: 40 }, (_, index) => {
    return settled(get(egress, `https://host${index}.test:${server.port}/`));
  });
  await until(() => egress.outcomes.busy === 28);
  assert.equal(egress.outcomes.caller, 0);
  await egress.close();
  const codes = await Promise.all(work);
  assert.equal(codes.filter((code) => code === 'busy').length, 28);
  assert.equal(codes.filter((code) => code === 'closed').length, 12);
});

test('a waiter that leaves gives its place up', async () => {
  await using server = await hostile(() => undefined);
  await using egress = clientOf(server, { limits: { sockets_max: 1 } });
  const first = settled(get(egress, server.url));
  await until(() => server.requests.length === 1);
  const controller = new AbortController();
  const { Deadline } = await import('@ron/kernel');
  using deadline = Deadline.after('mine', 60_000, { signal: controller.signal });
  const second = egress.whole({ url: server.url }, { deadline });
  await until(() => egress.connections.waiting === 1);
  controller.abort(new Error('left'));
  await assert.rejects(second, /left/);
  assert.equal(egress.connections.waiting, 0);
  await egress.close();
  assert.equal(await first, 'closed');
  await until(() => server.open() === 0);
});

test('idle connections are bounded, reused, and closed after a while', async () => {
  const held: Socket[] = [];
  await using server = await hostile((socket) => void held.push(socket));
  await using egress = clientOf(server, { limits: { idle_sockets_max: 2, idle_socket_ms: 200 } });
  const urls = [server.url, `https://127.0.0.1:${server.port}/`];
  const work = Array.from({ length: 5 }, (_, index) => settled(get(egress, urls[index % 2]!)));
  await until(() => held.length === 5);
  held.splice(0).forEach((socket) => void socket.write(ok()));
  await Promise.all(work);
  await quiet(egress);
  assert.ok(egress.connections.idle <= 2);
  await until(() => server.open() === 0);
  assert.equal(egress.connections.idle, 0);
  assert.equal(server.accepted(), 5);
});

test('without idle connections each request dials', async () => {
  await using server = await hostile((socket) => socket.write(ok()));
  await using egress = clientOf(server, { limits: { idle_sockets_max: 0 } });
  for (let call = 0; call < 3; call++) assert.equal(await settled(get(egress, server.url)), 'hello');
  await until(() => server.open() === 0);
  assert.equal(server.accepted(), 3);
});

for (const [name, poison] of Object.entries({
  'a second answer with the first': ok('first') + ok('poison'),
  'half an answer with the first': `${ok('first')}HTTP/1.1 200 OK\r\ncontent-le`,
  'junk with the first': `${ok('first')}junk`,
  'a body longer than its Content-Length': ok('first').replace('first', 'firstpoison'),
})) {
  test(`${name}: the next request does not read it`, async () => {
    let connections = 0;
    await using server = await hostile((socket, _head, count) => {
      if (count === 1 && ++connections === 1) socket.write(poison);
      else socket.write(ok(`answer ${connections}.${count}`));
    });
    await using egress = clientOf(server);
    // Bytes in the packet of the answer may fail that answer.
    assert.match(await settled(get(egress, server.url)), /^(first|bad_gateway)$/);
    await quiet(egress);
    for (let call = 0; call < 3; call++) assert.match(await settled(get(egress, server.url)), /^answer \d\.\d$/);
  });
}

test('bytes that arrive on an idle connection close it', async () => {
  const sockets: Socket[] = [];
  await using server = await hostile((socket, _head, count) => {
    if (count === 1) sockets.push(socket);
    socket.write(ok(sockets.length === 1 && count === 1 ? 'first' : 'second'));
  });
  await using egress = clientOf(server);
  assert.equal(await settled(get(egress, server.url)), 'first');
  await until(() => egress.connections.idle === 1);
  sockets[0]!.write(ok('poison'));
  await until(() => egress.connections.idle === 0);
  assert.equal(await settled(get(egress, server.url)), 'second');
  assert.equal(server.accepted(), 2);
});

for (const tls of ['TLS', 'plain'] as const) {
  test(`${tls}: bytes that arrived before the next request began are not its answer`, async () => {
    const sockets: Socket[] = [];
    await using server = await hostile(
      (socket, _head, count) => {
        if (count === 1) sockets.push(socket.setNoDelay());
        socket.write(ok(`answer ${sockets.length}`));
      },
      tls === 'plain' ? { tls } : {},
    );
    await using egress = clientOf(server, { schemes: ['https', 'http'] });
    for (let call = 1; call <= 10; call++) {
      // The poison is in the buffer of the client's socket, and the client had no turn to read it.
      assert.equal(await settled(get(egress, server.url)), `answer ${call}`);
      sockets.at(-1)!.write(ok('poison'));
    }
    assert.equal(server.accepted(), 10);
  });

  test(`${tls}: bytes that follow an answer while its reader is slow close the connection`, async () => {
    const sockets: Socket[] = [];
    await using server = await hostile(
      (socket, _head, count) => {
        if (count === 1) sockets.push(socket.setNoDelay());
        socket.write(ok(`answer ${sockets.length}`));
      },
      tls === 'plain' ? { tls } : {},
    );
    await using egress = clientOf(server, { schemes: ['https', 'http'] });
    await egress.exchange({ url: server.url }, { deadline: never() }, async ({ body }) => {
      // Half an answer: the other half would be read as the start of the next one.
      sockets[0]!.write(ok('poison').slice(0, 9));
      await until(() => server.open() === 0);
      assert.equal(text(await body.whole()), 'answer 1');
    });
    assert.equal(await settled(get(egress, server.url)), 'answer 2');
  });
}

test('a server that sends two answers on every connection does not mix those of concurrent requests', async () => {
  await using server = await hostile((socket, head) => {
    socket.setNoDelay();
    const path = /GET (\S+)/.exec(head)![1]!;
    socket.write(ok(path));
    if (path.endsWith('7')) setImmediate(() => socket.write(ok('poison')));
  });
  // The poison may be in flight when a kept connection is reused: only connections for one request exclude that.
  await using egress = clientOf(server, { ...stranger(server), limits: { sockets_per_origin: 4 } });
  const paths = Array.from({ length: 100 }, (_, index) => `/${index}`);
  const answers = await Promise.all(paths.map((path) => settled(get(egress, `https://${HOST}:${server.port}${path}`))));
  assert.deepEqual(answers, paths);
  assert.equal(server.accepted(), 100);
});

test('connections to servers outside `networks` are kept only with reuse: all', async () => {
  await using server = await hostile((socket) => socket.write(ok()));
  for (const [reuse, accepted] of [
    ['opened', 3],
    ['all', 4],
  ] as const) {
    await using egress = clientOf(server, { ...stranger(server), reuse });
    for (let call = 0; call < 3; call++) {
      const answer = await get(egress, server.url);
      assert.equal(answer.peer.address, '93.184.216.34');
      await quiet(egress);
    }
    assert.equal(egress.connections.idle, reuse === 'all' ? 1 : 0);
    assert.equal(server.accepted(), accepted);
  }
});

test('a kept connection that the server drops at the next request costs an idempotent request nothing', async () => {
  await using server = await hostile(
    (socket, _head, count) => void (count === 1 ? socket.write(ok()) : socket.destroy()),
  );
  await using egress = clientOf(server);
  for (let call = 0; call < 3; call++) assert.equal(await settled(get(egress, server.url)), 'hello');
  assert.equal(server.accepted(), 3);
  await quiet(egress);
  const post = egress.whole({ url: server.url, method: 'POST', body: Buffer.from('x') }, { deadline: never() });
  await refused(post, 'unreachable');
  await quiet(egress);
  assert.equal(server.accepted(), 3, 'a request that is not idempotent is sent once');
});

test('a body that is not read to its end closes its connection, an unread small one keeps it', async () => {
  await using server = await hostile((socket, head) => {
    if (head.includes('/large')) socket.write(ok('x'.repeat(500_000)));
    else if (head.includes('/pieces'))
      socket.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n');
    else socket.write(ok());
  });
  await using egress = clientOf(server);
  await egress.exchange({ url: server.url }, { deadline: never() }, async () => undefined);
  await quiet(egress);
  assert.equal(egress.connections.idle, 1);
  // The second one has arrived as a whole when its first piece is read.
  for (const path of ['large', 'pieces']) {
    await egress.exchange({ url: server.url + path }, { deadline: never() }, async ({ body }) => {
      for await (const piece of body) if (piece.length > 0) break;
    });
    await quiet(egress);
    await until(() => server.open() === 0);
    assert.equal(egress.connections.idle, 0);
  }
});

test('disconnect closes the connections of one origin only', async () => {
  await using server = await hostile((socket, head) => void (head.includes('/silent') || socket.write(ok())));
  await using egress = clientOf(server);
  const literal = `https://127.0.0.1:${server.port}/`;
  await get(egress, literal);
  const silent = settled(get(egress, `${server.url}silent`));
  await until(() => server.requests.length === 2);
  assert.throws(() => egress.disconnect(HOST), { code: 'validation' });
  egress.disconnect(`https://${HOST.toUpperCase()}:${server.port}`);
  assert.equal(await silent, 'unreachable');
  await until(() => server.open() === 1);
  assert.equal(egress.connections.idle, 1);
});

test('close ends running exchanges at every stage and refuses new ones', async () => {
  await using server = await hostile((socket, head) => {
    if (head.includes('/body')) socket.write('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc');
  });
  const egress = clientOf(server, { limits: { sockets_max: 2, sockets_per_origin: 2 } });
  const work = [`${server.url}body`, server.url, server.url].map((url) => settled(get(egress, url)));
  await until(() => server.requests.length === 2);
  await egress.close();
  await egress.close();
  assert.deepEqual(await Promise.all(work), ['closed', 'closed', 'closed']);
  assert.equal(await settled(get(egress, server.url)), 'closed');
  await quiet(egress);
  await until(() => server.open() === 0);
});
