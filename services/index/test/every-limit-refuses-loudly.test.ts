/** Every limit of index refuses with its code and counts it, while health routes answer. */
import assert from 'node:assert/strict';
import { Agent } from 'node:http';
import { suite, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import type { IndexStore } from '@ron/index';
import { formatAddress } from '@ron/proto';
import { eventually } from '@ron/testkit';
import { assertRefusal, type Reply } from '@ron/testkit/service';
import { AMNESIA, startService, type TestIndex } from './support.ts';

const HEALTH = ['/healthz', '/readyz', '/metrics', '/version'];
let next = 0;
const address = (): string => formatAddress(new Uint8Array(new Uint32Array(8).fill((next += 1)).buffer));

/** A database whose reads of objects wait until they are released. */
class HeldReads {
  #gate = Promise.withResolvers<void>();
  held = 0;

  readonly wrapStore = (store: IndexStore): IndexStore =>
    new Proxy(store, {
      get: (target, name) => {
        if (name === 'object')
          return async (...args: Parameters<IndexStore['object']>) => {
            this.held += 1;
            await this.#gate.promise;
            return target.object(...args);
          };
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });

  release(): void {
    this.#gate.resolve();
  }
}

/** Sends lookups of distinct addresses, as one client. */
function flood(service: TestIndex, count: number, local = '127.0.0.1', path = '/resolve'): Promise<Reply>[] {
  const agent = new Agent({ keepAlive: true, maxSockets: 600, localAddress: local });
  return Array.from({ length: count }, () => service.send('GET', `${path}/${address()}`, { agent }));
}

const busyOf = (service: TestIndex, route: string): Promise<number> =>
  service.metric(`busy_rejections_total{route="${route}"}`);

async function assertHealthy(service: TestIndex): Promise<void> {
  for (const path of HEALTH) {
    const began_ms = performance.now();
    const { status } = await service.send('GET', path);
    assert.equal(status, 200, path);
    // [index I-13] It waits for nothing; a busy machine needs a moment all the same.
    assert.ok(performance.now() - began_ms < 1000, `${path} answers at once`);
  }
}

suite('limits', () => {
  test('[index I-3] [index I-9] a full queue gets 429 `busy` with Retry-After, and is counted', async () => {
    const reads = new HeldReads();
    // Client and service share a thread: on a busy machine 500 connections take a while.
    const room = ['--server.max_inflight=2048', '--server.connection_limit_per_ip=1000', '--server.header_timeout=60s'];
    const flags = [...AMNESIA, '--index.resolvers=1', '--dht.deadline_ms=30000', ...room];
    await using service = await startService({ flags, wrapStore: reads.wrapStore });
    // One is with the resolver; the lane has its own 64 places and the 384 that both lanes share.
    const replies = flood(service, 500);
    await eventually('the queue is full', async () => (await busyOf(service, '/resolve')) > 0);
    await assertHealthy(service);
    await eventually('all others are refused', async () => (await busyOf(service, '/resolve')) === 500 - 1 - 448);
    assert.equal(await service.metric('queue_depth{queue="work"}'), 448);
    // [index I-14] Another address gets a place, and so does the other route.
    const others = [...flood(service, 1, '127.0.0.2'), ...flood(service, 1, '127.0.0.1', '/providers')];
    await eventually('both wait', async () => (await service.metric('queue_depth{queue="/providers"}')) === 1);
    reads.release();
    for (const reply of await Promise.all(others)) assertRefusal(reply, 404, 'not_found');
    const all = await Promise.all(replies);
    const refused = all.filter(({ status }) => status === 429);
    assert.ok(refused.length >= 51 && refused.length <= 52, `${refused.length} were refused`);
    for (const reply of refused) {
      assertRefusal(reply, 429, 'busy');
      assert.match(reply.headers['retry-after'] ?? '', /^\d+$/);
    }
    for (const reply of all) if (reply.status !== 429) assertRefusal(reply, 404, 'not_found');
  });

  test('callers beyond index.waiters_max get 429, and callers of one key share a lookup', async () => {
    const reads = new HeldReads();
    const flags = [...AMNESIA, '--index.waiters_max=5', '--dht.deadline_ms=30000'];
    await using service = await startService({ flags, wrapStore: reads.wrapStore });
    const same = address();
    const replies = Array.from({ length: 8 }, () => service.send('GET', `/resolve/${same}`));
    await eventually('three are refused', async () => (await busyOf(service, '/resolve')) === 3);
    assert.equal(reads.held, 1, 'one lookup for all');
    await assertHealthy(service);
    reads.release();
    const statuses = (await Promise.all(replies)).map(({ status }) => status);
    assert.deepEqual(
      statuses.toSorted((a, b) => a - b),
      [404, 404, 404, 404, 404, 429, 429, 429],
    );
  });

  test('[index I-4] a lookup that stalls gets 504 at its budget, or at the shorter one of its caller', async () => {
    const reads = new HeldReads();
    await using service = await startService({
      flags: [...AMNESIA, '--dht.deadline_ms=400', '--dht.hedge_ms=50'],
      wrapStore: reads.wrapStore,
    });
    for (const [headers, budget_ms] of [
      [{}, 400],
      [{ 'request-timeout': '0.2' }, 200],
    ] as const) {
      const began_ms = performance.now();
      assertRefusal(await service.send('GET', `/resolve/${address()}`, { headers }), 504, 'timeout');
      const took_ms = performance.now() - began_ms;
      assert.ok(took_ms > budget_ms - 60 && took_ms < budget_ms + 1000, `${took_ms} ms for ${budget_ms}`);
    }
    assert.equal(await service.metric('resolve_deadline_hit'), 2);
    reads.release();
  });

  test('[index I-14] the connections and the rate of an address are limited', async () => {
    const flags = [...AMNESIA, '--ratelimit.per_ip_rps=5', '--ratelimit.per_ip_burst=5'];
    await using service = await startService({ flags });
    const replies = await Promise.all(flood(service, 30));
    const limited = replies.filter(({ problem }) => problem?.code === 'address_rate_limited');
    assert.ok(limited.length >= 15, `${limited.length} of 30`);
    assert.equal(await service.metric('rejected_total{reason="address_rate_limited"}'), limited.length);
    const [other] = await Promise.all(flood(service, 1, '127.0.0.3'));
    assertRefusal(other!, 404, 'not_found');
    await assertHealthy(service);
  });

  test('[index I-10] a body that expands more than tenfold is refused', async () => {
    await using service = await startService({ flags: AMNESIA });
    const body = gzipSync(JSON.stringify({ entries: [], x: ' '.repeat(900_000) }));
    const headers = { ...(await service.allow()), 'content-type': 'application/json', 'content-encoding': 'gzip' };
    assertRefusal(await service.send('POST', '/announce', { headers, body }), 413, 'decompress_cap');
  });
});
