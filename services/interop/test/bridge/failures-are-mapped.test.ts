/** A failure of storage or passport, a brownout and a rate each end `/put` and `/o` with their status and reason. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { ServerResponse } from '@ron/kernel/http';
import { bytesOf, eventually, MIB } from '@ron/testkit';
import { addressOf, type Reply } from '@ron/testkit/service';
import { fakeStorage, startBridge, type Bridged, type FakeStorage } from './support.ts';

const DOWN = 'DOWNSTREAM_UNAVAILABLE';
const BODIES = [bytesOf(100), bytesOf(2 * MIB)] as const;

function assertReason(reply: Reply, status: number, reason: string | undefined): void {
  assert.deepEqual([reply.status, reply.headers['x-reason']], [status, reason], reply.text);
  if (status === 503 || status === 429) assert.ok(Number(reply.headers['retry-after']) >= 1, 'Retry-After');
}

function refuse(response: ServerResponse, status: number, code: string): void {
  const text = JSON.stringify({ code, status, detail: 'refused by the test' });
  const headers = { 'Content-Type': 'application/problem+json', 'Content-Length': Buffer.byteLength(text) };
  response.writeHead(status, headers).end(text);
}

async function inFrontOfFake(t: TestContext): Promise<{ bridge: Bridged; fake: FakeStorage }> {
  const fake = await fakeStorage(t, (request) => void request.resume());
  return { fake, bridge: await startBridge(t, { storage_socket: fake.path }) };
}

describe('put', () => {
  test('each refusal of storage becomes a status and a reason of interop', async (t) => {
    const { bridge, fake } = await inFrontOfFake(t);
    const cases: readonly [status: number, code: string, seen: number, reason: string | undefined][] = [
      [507, 'storage_full', 507, undefined],
      [401, 'unauthorized', 401, 'EXPIRED_TOKEN'],
      [403, 'forbidden', 403, 'SCOPE_MISMATCH'],
      [409, 'address_mismatch', 409, undefined],
      [413, 'payload_too_large', 413, 'BODY_LIMIT'],
      [415, 'unsupported_media', 415, undefined],
      // Last: they open the breaker.
      [500, 'internal', 503, DOWN],
      [503, 'not_ready', 503, DOWN],
      [429, 'busy', 503, DOWN],
    ];
    for (const [status, code, seen, reason] of cases) {
      fake.answer = (request, response) => {
        request.resume();
        request.on('end', () => refuse(response, status, code));
      };
      for (const body of BODIES) assertReason(await bridge.put(body), seen, reason);
    }
  });

  test('a refusal before the end of the body ends the stream and is passed on', async (t) => {
    const bridge = await startBridge(t, { storage_flags: ['--storage.object_bytes_max=3MiB'] });
    for (const headers of [{}, { 'transfer-encoding': 'chunked' }] as const) {
      assertReason(await bridge.put(bytesOf(8 * MIB), { headers }), 413, 'BODY_LIMIT');
    }
    assert.equal((await bridge.put(bytesOf(3 * MIB))).status, 201);
  });

  test('an acknowledgement that names another body, or comes before its end, is not passed on', async (t) => {
    const { bridge, fake } = await inFrontOfFake(t);
    const receipt = {
      address: addressOf(Buffer.from('other')),
      size: 1,
      durability: { fsynced: true, copies: 1, target: 1 },
    };
    const text = JSON.stringify(receipt);
    const acknowledge = (response: ServerResponse): void => {
      response.writeHead(201, { 'Content-Type': 'application/json', 'Content-Length': text.length }).end(text);
    };
    fake.answer = (request, response) => {
      request.resume();
      request.on('end', () => acknowledge(response));
    };
    for (const body of BODIES) assertReason(await bridge.put(body), 503, DOWN);
    fake.answer = (request, response) => {
      request.resume();
      acknowledge(response);
    };
    assertReason(await bridge.put(bytesOf(8 * MIB)), 503, DOWN);
  });

  test('[interop I-4] a storage that accepts and stays silent is a timeout after 2 s, with its operation and duration', async (t) => {
    const { bridge } = await inFrontOfFake(t);
    const times = BODIES.map(async (body) => {
      const began_ms = performance.now();
      const reply = await bridge.put(body);
      const took_ms = performance.now() - began_ms;
      assertReason(reply, 504, DOWN);
      assert.ok(took_ms > 1800 && took_ms < 4000, `${took_ms}`);
      const { op, upstream, duration_ms } = reply.json;
      assert.deepEqual([op, upstream], ['put', 'storage']);
      assert.ok(duration_ms > 1500 && duration_ms < 4000, `${duration_ms}`);
    });
    await Promise.all(times);
  });

  test('[interop I-4] an answer of storage that stops after its headers is a timeout after 2 s', async (t) => {
    const { bridge, fake } = await inFrontOfFake(t);
    for (const [status, type] of [
      [201, 'application/json'],
      [507, 'application/problem+json'],
    ] as const) {
      fake.answer = (request, response) => {
        request.resume();
        request.on('end', () => {
          response.writeHead(status, { 'Content-Type': type, 'Content-Length': 100 });
          response.flushHeaders();
        });
      };
      await Promise.all(BODIES.map(async (body) => assertReason(await bridge.put(body), 504, DOWN)));
    }
  });

  test('a storage that is away is unavailable, and after its breaker opened it is not called', async (t) => {
    const { bridge, fake } = await inFrontOfFake(t);
    await fake.stop();
    const unread = await bridge.send('GET', `/o/b3:${'0'.repeat(64)}`);
    assertReason(unread, 503, DOWN);
    assert.equal(unread.problem?.detail, 'storage failed get: it is unreachable');
    for (let at = 0; at < 6; at++) {
      const reply = await bridge.put(BODIES[at % 2]!);
      assertReason(reply, 503, DOWN);
      if (at === 0) assert.equal(reply.problem?.detail, 'storage failed put: it is unreachable');
    }
    const open = await bridge.put('x');
    assertReason(open, 503, DOWN);
    assert.equal(open.problem?.code, 'breaker_open');
    const read = await bridge.send('GET', `/o/b3:${'0'.repeat(64)}`);
    assertReason(read, 503, DOWN);
  });

  test('a passport that is away, silent or refuses interop is unavailable, and storage gets nothing', async (t) => {
    const silent = await fakeStorage(t, (request) => void request.resume());
    const storage = await fakeStorage(t, (_, response) => refuse(response, 500, 'internal'));
    const hung = await startBridge(t, { passport_socket: silent.path, storage_socket: storage.path });
    // Interop knows no revocations without passport: it accepts only capabilities of the node.
    const own = await hung.client([], { subject: 'root' });
    const began_ms = performance.now();
    const late = await hung.put('x', { token: own });
    assertReason(late, 504, DOWN);
    assert.deepEqual([late.json.op, late.json.upstream], ['exchange', 'passport']);
    assert.ok(performance.now() - began_ms < 1500);
    await silent.stop();
    assertReason(await hung.put('x', { token: own }), 503, DOWN);
    const weak = await startBridge(t, { passport_scopes: ['passport:verify'], storage_socket: storage.path });
    let refused = await weak.put('x');
    // On a busy machine passport may be late first.
    await eventually('passport answers in time', async () => {
      if (refused.status === 504) refused = await weak.put('x');
      return refused.status !== 504;
    });
    assertReason(refused, 503, DOWN);
    assert.equal(refused.problem!.detail, 'interop has no valid capability for passport');
    assert.match(weak.problems.passport()!, /^passport refuses the capability of interop: .*passport:verify/);
    assert.equal(storage.requests.length, 0);
  });

  test('a brownout sheds bodies, and reads go on', async (t) => {
    const bridge = await startBridge(t);
    const body = bytesOf(100);
    assert.equal((await bridge.put(body)).status, 201);
    bridge.upstreams.sentinel.set({ mode: 'on', until_ms: Date.now() + 60_000, why: 'test' });
    for (const each of BODIES) assertReason(await bridge.put(each), 503, 'BACKPRESSURE');
    assert.equal((await bridge.send('GET', `/o/${addressOf(body)}`)).status, 200);
    bridge.upstreams.sentinel.set({ mode: 'auto' });
    assert.equal((await bridge.put(body)).status, 200);
  });

  test('the rate of the listener is spent by authorized bodies only', async (t) => {
    const bridge = await startBridge(t, { flags: ['--server.max_rps=1', '--server.rps_burst=2'] });
    for (let at = 0; at < 10; at++) assertReason(await bridge.put('x', { token: 'forged' }), 401, 'BAD_ORIGIN');
    const statuses: number[] = [];
    for (let at = 0; at < 4; at++) statuses.push((await bridge.put(`${at}`)).status);
    assert.deepEqual(statuses.slice(0, 2), [201, 201]);
    assert.ok(statuses.includes(429), String(statuses));
  });
});
