import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sched } from '@ron/kernel';
import { addressToCid } from '@ron/proto';
import { eventually } from '@ron/testkit';
import { RawClient, send } from '@ron/testkit/service';
import { BUDGET_MS, listen } from '../resolve/testing/listen.ts';
import { addressOf, dhtOf, KEY, nameOf, objectOf, SELF } from '../resolve/testing/open-resolving.ts';
import { multiaddrOf } from './routing.ts';

const ADDRESS = addressOf('object');
const PEER = { id: '12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp', url: 'http://192.0.2.1:7101', reporters: 1 };
const NDJSON = { headers: { accept: 'application/x-ndjson' } };
type Listening = Awaited<ReturnType<typeof listen>>;

const putObject = ({ store }: Listening): void => void store.objects.set(ADDRESS, objectOf(ADDRESS, sched.wall_ms()));

test('a resolved name is answered from the database, then from the cache with Age and a weak tag', async () => {
  await using x = await listen();
  putObject(x);
  x.store.setName(nameOf({ label: 'docs/guide', value: ADDRESS }));
  const first = await send(x.url, 'GET', '/resolve/name:docs/guide');
  assert.equal(first.status, 200);
  const body = JSON.parse(first.text);
  assert.deepEqual(
    [body.key, body.address, body.source, body.complete, body.name.label, body.manifest],
    [
      'name:docs/guide',
      ADDRESS,
      'db',
      true,
      'docs/guide',
      { size: 5, media_type: 'text/plain', url: `${SELF.url}/o/${ADDRESS}` },
    ],
  );
  await eventually('it is cached', () => x.resolving.cache.get('name:docs/guide') !== undefined);
  const cached = await send(x.url, 'GET', '/resolve/name:docs/guide');
  assert.deepEqual(JSON.parse(cached.text), { ...body, source: 'cache' });
  const { etag, age, 'cache-control': control, 'content-type': type } = cached.headers;
  assert.match(String(etag), /^W\/"[\w-]{22}"$/);
  assert.deepEqual([age, control, type], ['0', 'public, max-age=5', 'application/json; charset=utf-8']);
  assert.equal(first.headers['etag'], etag, 'the same meaning has the same tag');
  for (const path of ['/resolve/name:docs/guide', '/resolve/name:docs%2Fguide', '/resolve/name:docs/guide?fresh=1']) {
    const again = await send(x.url, 'GET', path, { headers: { 'if-none-match': String(etag) } });
    assert.equal(again.status, path.includes('%2F') ? 400 : 304, path);
  }
  assert.equal((await send(x.url, 'HEAD', '/resolve/name:docs/guide')).status, 200);
  assert.equal(x.resolving.cache.totals().hits >= 3, true);
});

test('an announcement outdates the cached address, and the names that lead to it', async () => {
  await using x = await listen();
  x.store.setName(nameOf({ label: 'a', value: ADDRESS }));
  assert.equal((await send(x.url, 'GET', `/resolve/${ADDRESS}`)).json.reason, 'none_has_it');
  assert.deepEqual(JSON.parse((await send(x.url, 'GET', '/resolve/name:a')).text).providers, []);
  await eventually('both are cached', () => x.resolving.cache.size === 2);
  putObject(x);
  x.resolving.invalidator.invalidate([ADDRESS]);
  for (const key of [ADDRESS, 'name:a']) {
    const { providers } = JSON.parse((await send(x.url, 'GET', `/resolve/${key}`)).text);
    assert.equal(providers.length, 1, key);
  }
});

test('a name of another node is read by one lookup for all callers, again once its answer is outdated, as by /resolve', async () => {
  let asked = 0;
  let seq = 1;
  const adopted = (): void => {
    const previous = seq === 1 ? {} : { previous: '00'.repeat(32) };
    x.store.setName(nameOf({ label: 'a', value: ADDRESS, seq, ...previous }, false));
  };
  const dht = {
    ...dhtOf({ empty: 'none_has_it' }),
    findName: async () => {
      asked += 1;
      adopted();
      return { values: [new Uint8Array(1)], answers: 1, complete: true, empty: undefined };
    },
  };
  await using x = await listen({ dht: () => dht });
  const read = async (): Promise<number> => (await send(x.url, 'GET', `/names/a@${KEY}`)).json.seq as number;
  assert.deepEqual(await Promise.all([read(), read(), read()]), [1, 1, 1]);
  await eventually('it is cached', () => x.resolving.cache.get(`name:a@${KEY}`) !== undefined);
  seq = 2;
  assert.equal(await read(), 1);
  assert.equal(asked, 1, 'callers share a lookup and its answer');
  x.resolving.invalidator.invalidate([`name:a@${KEY}`]);
  assert.equal(await read(), 2, 'the network is asked again although the database knows a record');
  const { json } = await send(x.url, 'GET', `/resolve/name:a@${KEY}`);
  assert.equal((json['name'] as { seq: number }).seq, 2);
});

test('an unknown name is looked up once, then refused from the cache; one that was removed is an answer', async () => {
  let asked = 0;
  const found = { values: [], answers: 1, complete: true, empty: 'none_has_it' } as const;
  const findName = async () => ((asked += 1), found);
  await using x = await listen({ dht: () => ({ ...dhtOf({}), findName }) });
  const read = (label: string) => send(x.url, 'GET', `/names/${label}@${KEY}`);
  assert.equal((await read('unknown')).status, 404);
  await eventually('the refusal is cached', () => x.resolving.cache.size === 1);
  for (const _ of [1, 2, 3]) assert.equal((await read('unknown')).status, 404);
  assert.equal(asked, 1);
  x.store.setName(nameOf({ label: 'gone', seq: 2, previous: '00'.repeat(32) }, false));
  assert.equal((await read('gone')).json['seq'], 2);
});

test('malformed targets, parameters and queries are refused with the reason', async () => {
  await using x = await listen();
  const bad = [
    '/resolve/',
    '/resolve/b3:00',
    `/resolve/${ADDRESS.toUpperCase()}`,
    '/resolve/name:Upper',
    '/resolve/name:a//b',
    '/resolve/name:a@00',
    `/resolve/name:${'a/'.repeat(200)}a`,
    '/resolve/name:caf%C3%A9',
    `/resolve/${ADDRESS}?fresh=yes`,
    `/resolve/${ADDRESS}?fresh=1&fresh=1`,
    `/resolve/${ADDRESS}?unknown=1`,
    `/providers/${ADDRESS}?limit=0`,
    `/providers/${ADDRESS}?limit=33`,
    `/providers/${ADDRESS}?min_freshness=-1`,
    '/providers/b3:00',
  ];
  for (const path of bad) {
    const { status, problem } = await send(x.url, 'GET', path);
    assert.equal(status, 400, path);
    assert.ok(String(problem?.['detail']).length > 10);
  }
  for (const cid of ['x', 'QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG', `${addressToCid(ADDRESS)}a`]) {
    assert.equal((await send(x.url, 'GET', `/routing/v1/providers/${cid}`)).status, 422, cid);
  }
});

test('a receipt explains the lookup and is never cached', async () => {
  await using x = await listen({ dht: () => dhtOf({ providers: [PEER] }) });
  x.evidence.verdicts.set(PEER.id, 'proven');
  x.evidence.latencies.set(PEER.id, 12.4);
  const reply = await send(x.url, 'GET', `/resolve/${ADDRESS}?receipt=1`);
  assert.equal(reply.headers['cache-control'], 'no-store');
  const { receipt, source } = JSON.parse(reply.text);
  assert.deepEqual([source, receipt.source, receipt.budget_ms], ['dht', 'dht', BUDGET_MS]);
  assert.deepEqual(receipt.ranking, [
    { id: PEER.id, rank: 1, proof: 'proven', age_s: null, latency_ms: 12, breaker: 'closed' },
  ]);
  await eventually('it is cached', () => x.resolving.cache.get(ADDRESS) !== undefined);
  const cached = JSON.parse((await send(x.url, 'GET', `/resolve/${ADDRESS}`)).text);
  assert.ok(!('receipt' in cached));
});

test('providers: ranked, limited, by age; and the whole list in join mode even if this node has the object', async () => {
  await using x = await listen({ dht: () => dhtOf({ providers: [PEER] }) });
  putObject(x);
  x.evidence.verdicts.set(PEER.id, 'proven');
  x.store.objects.set(ADDRESS, objectOf(ADDRESS, sched.wall_ms() - 100_000));
  await send(x.url, 'GET', `/resolve/${ADDRESS}`);
  const ids = async (query: string): Promise<string[]> => {
    const reply = await send(x.url, 'GET', `/providers/${ADDRESS}${query}`);
    return JSON.parse(reply.text).providers.map(({ id }: { id: string }) => id);
  };
  assert.deepEqual(await ids(''), [PEER.id, SELF.id]);
  assert.deepEqual(await ids('?limit=1'), [PEER.id]);
  assert.deepEqual(
    await ids('?min_freshness=50'),
    [],
    'this node announced it earlier, and the age of the peer is unknown',
  );
  assert.deepEqual(await ids('?min_freshness=999999999'), [SELF.id]);
});

test('ndjson: the first line arrives before the lookup ends, the last one states completeness', async () => {
  const end = sched.park<void>('end');
  const dht = {
    ...dhtOf({}),
    findProviders: async (_: unknown, { onProvider }: { onProvider?: ((found: typeof PEER) => void) | undefined }) => {
      onProvider?.(PEER);
      await end.promise;
      return { providers: [PEER, { ...PEER, id: '12D3KooWLast' }], complete: true, empty: undefined };
    },
  };
  await using x = await listen({ dht: () => dht });
  const client = await RawClient.open(Number(new URL(x.url).port));
  client.write(`GET /providers/${ADDRESS} HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\n\r\n`);
  await client.until(new RegExp(`"id":"${PEER.id}"`));
  assert.doesNotMatch(client.received, /complete/);
  const second = send(x.url, 'GET', `/providers/${ADDRESS}`, NDJSON);
  end.wake();
  await client.until(/"complete":true/);
  client.destroy();
  const lines = (await second).text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  assert.deepEqual(
    lines.map(({ id, complete }) => id ?? complete),
    [PEER.id, '12D3KooWLast', true],
  );
  const cached = await send(x.url, 'GET', `/providers/${ADDRESS}?limit=1`, NDJSON);
  assert.equal(cached.text.trim().split('\n').length, 2);
});

test('ndjson: nothing found is a problem, and a stalled lookup ends with complete: false', async () => {
  await using none = await listen();
  assert.equal((await send(none.url, 'GET', `/providers/${ADDRESS}`, NDJSON)).status, 404);
  const stalled = {
    ...dhtOf({}),
    findProviders: (_: unknown, { onProvider }: { onProvider?: ((found: typeof PEER) => void) | undefined }) => {
      onProvider?.(PEER);
      return new Promise<never>(() => undefined);
    },
  };
  await using x = await listen({ dht: () => stalled });
  const began_ms = sched.now_ms();
  const reply = await send(x.url, 'GET', `/providers/${ADDRESS}`, {
    headers: { ...NDJSON.headers, 'request-timeout': '1' },
  });
  const lines = reply.text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  assert.deepEqual(lines.at(-1), { complete: false });
  assert.ok(sched.now_ms() - began_ms >= 990);
});

test('a lookup that stalls is answered with 504 at the deadline of the caller, and counted', async () => {
  await using x = await listen();
  x.store.gate = () => new Promise<void>(() => undefined);
  const reply = await send(x.url, 'GET', `/resolve/${ADDRESS}`, { headers: { 'request-timeout': '0.1' } });
  assert.deepEqual([reply.status, reply.problem?.code], [504, 'timeout']);
  await eventually('it is counted', () => x.hits.deadline === 1);
});

test('[index I-9] more waiting requests than the limit of the route get 429 at once', async () => {
  await using x = await listen({ settings: { waiters_max: 2 } });
  const held = sched.park<void>('read');
  x.store.gate = () => held.promise;
  const waiting = [1, 2].map(() => send(x.url, 'GET', `/resolve/${ADDRESS}`));
  await eventually('both wait', () => x.resolving.resolve_waiters.depth === 2);
  const refused = await send(x.url, 'GET', `/resolve/${addressOf('other')}`);
  assert.deepEqual([refused.status, refused.problem?.code, x.resolving.resolve_waiters.busy_total], [429, 'busy', 1]);
  putObject(x);
  held.wake();
  await Promise.all(waiting);
  assert.equal(x.resolving.resolve_waiters.depth, 0);
});

test('URLs of providers as multiaddrs', () => {
  assert.equal(multiaddrOf('http://192.0.2.1:7101'), '/ip4/192.0.2.1/tcp/7101/http');
  assert.equal(multiaddrOf('https://example.org'), '/dns/example.org/tcp/443/tls/http');
  assert.equal(multiaddrOf('http://[2001:db8::1]:80/'), '/ip6/2001:db8::1/tcp/80/http');
  for (const url of ['http://a/b', 'ftp://a', 'nonsense']) assert.equal(multiaddrOf(url), undefined);
});
