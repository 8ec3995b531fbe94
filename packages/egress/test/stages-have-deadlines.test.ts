import assert from 'node:assert/strict';
import { Socket } from 'node:net';
import { test } from 'node:test';
import { Deadline } from '@ron/kernel';
import type { EgressInit, EgressLimits } from '../src/index.ts';
import { clientOf, get, hostile, never, ok, quiet, refused, until, type HostileInit, type Script } from './support.ts';

const silent: Script = () => undefined;

/** Writes `piece` every few milliseconds until the connection ends. */
function drip(socket: Socket, piece: string): void {
  const timer = setInterval(() => void socket.write(piece), 5);
  socket.once('close', () => clearInterval(timer));
}

interface Case {
  readonly name: string;
  readonly op: string;
  readonly limits: Partial<EgressLimits>;
  readonly script?: Script;
  readonly server?: HostileInit;
  readonly init?: Partial<EgressInit>;
}

const CASES: readonly Case[] = [
  {
    name: 'a lookup that never ends',
    op: 'egress_dns',
    limits: { dns_ms: 40 },
    init: { lookup: () => new Promise<never>(() => undefined) },
  },
  {
    name: 'a connection that is never accepted',
    op: 'egress_connect',
    limits: { connect_ms: 40 },
    init: { connect: () => new Socket() },
  },
  { name: 'TCP without TLS', op: 'egress_tls', limits: { tls_ms: 40 }, server: { tls: 'none' } },
  { name: 'TLS, then silence', op: 'egress_first_byte', limits: { first_byte_ms: 40 } },
  {
    name: 'headers byte by byte',
    op: 'egress_first_byte',
    limits: { first_byte_ms: 150 },
    script: (socket) => {
      socket.write('HTTP/1.1 200 OK\r\nx: ');
      drip(socket, 'a');
    },
  },
  {
    name: 'interim answers instead of an answer',
    op: 'egress_first_byte',
    limits: { first_byte_ms: 150, informational_max: 1e6 },
    script: (socket) => drip(socket, 'HTTP/1.1 102 Processing\r\n\r\n'),
  },
  {
    name: 'a body that stops',
    op: 'egress_idle',
    limits: { idle_ms: 40 },
    script: (socket) => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc'),
  },
  {
    name: 'a body byte by byte',
    op: 'egress_total',
    limits: { total_ms: 400 },
    script: (socket) => {
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n');
      drip(socket, 'a');
    },
  },
];

for (const { name, op, limits, script = silent, server: init, init: client } of CASES) {
  test(`${name}: timeout of ${op}, and the connection is closed`, async () => {
    await using server = await hostile(script, init);
    await using egress = clientOf(server, { ...client, limits });
    await refused(get(egress, server.url), 'timeout', op);
    await quiet(egress);
    await until(() => server.open() === 0);
    assert.equal(egress.outcomes.timeout, 1);
    assert.equal(egress.connections.idle, 0);
  });
}

test("the caller's deadline ends every stage, and is the one that is named", async () => {
  for (const { script = silent, server: init, init: client } of CASES) {
    await using server = await hostile(script, init);
    await using egress = clientOf(server, { ...client, limits: { informational_max: 1e6 } });
    using deadline = Deadline.after('mine', 100);
    await refused(egress.whole({ url: server.url }, { deadline }), 'timeout', 'mine');
    await quiet(egress);
    await until(() => server.open() === 0);
  }
});

test('a caller that leaves ends the exchange with its own reason, at every stage', async () => {
  for (const { script = silent, server: init, init: client } of CASES) {
    await using server = await hostile(script, init);
    await using egress = clientOf(server, { ...client, limits: { informational_max: 1e6 } });
    const reason = new Error('the client has left');
    const controller = new AbortController();
    using deadline = Deadline.after('mine', 60_000, { signal: controller.signal });
    const running = egress.whole({ url: server.url }, { deadline });
    if (client === undefined) await until(() => server.accepted() > 0);
    controller.abort(reason);
    await assert.rejects(running, reason);
    await quiet(egress);
    await until(() => server.open() === 0);
    assert.deepEqual({ canceled: egress.outcomes.canceled }, { canceled: 1 });
  }
});

test('time that the reader takes is not charged to the server', async () => {
  await using server = await hostile((socket) => socket.write(ok('x'.repeat(200_000))));
  await using egress = clientOf(server, { limits: { idle_ms: 100 } });
  const bytes = await egress.exchange({ url: server.url }, { deadline: never() }, async ({ body }) => {
    let count = 0;
    for await (const piece of body) {
      if (count === 0) await new Promise((resolve) => void setTimeout(resolve, 300));
      count += piece.length;
    }
    return count;
  });
  assert.equal(bytes, 200_000);
});
