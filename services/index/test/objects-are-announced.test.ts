/** Announcements of storage, and the answers that depend on them. */
import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import type { AnnounceEntry } from '@ron/proto';
import { bytesOf, eventually } from '@ron/testkit';
import { addressOf, assertRefusal } from '@ron/testkit/service';
import { AMNESIA, startService, type TestIndex } from './support.ts';

const STORAGE = 'http://127.0.0.1:7101';
let next = 1;
/** An object that no other test uses. */
function object(): AnnounceEntry & { readonly address: string } {
  const bytes = bytesOf(32, (next += 1));
  return { address: addressOf(bytes) as AnnounceEntry['address'], size: bytes.length, media_type: 'text/plain' };
}

suite('announce', () => {
  let service: TestIndex;
  before(async () => {
    service = await startService({ flags: [...AMNESIA, `--index.storage_url=${STORAGE}`] });
  });
  after(() => service[Symbol.asyncDispose]());
  const announce = (...entries: AnnounceEntry[]) => service.call('POST', '/announce', { entries });
  const resolve = (key: string) => service.send('GET', `/resolve/${key}`);

  test('an announced object is found at this node, even if it was just missed', async () => {
    const { address, size, media_type } = object();
    assertRefusal(await resolve(address), 404, 'not_found');
    const reply = await announce({ address, size, media_type });
    assert.equal(reply.status, 200, reply.text);
    assert.match(reply.json.epoch, /./);
    const found = await resolve(address);
    assert.equal(found.status, 200, found.text);
    const { providers, manifest, complete, source } = found.json;
    assert.deepEqual(manifest, { size, media_type, url: `${STORAGE}/o/${address}` });
    assert.deepEqual([complete, source], [true, 'db']);
    assert.deepEqual(
      providers.map(({ id, url, proof }: Record<string, string>) => [id, url, proof]),
      [[service.index.node_key.peer_id, STORAGE, 'unproven']],
    );
  });

  test('a repeated announcement changes nothing, and an empty one returns the epoch', async () => {
    const entry = object();
    const [first, again, empty] = [await announce(entry), await announce(entry), await announce()];
    assert.deepEqual([first.status, again.status, empty.status], [200, 200, 200]);
    assert.equal(new Set([first, again, empty].map(({ json }) => json.epoch)).size, 1);
    assert.equal((await resolve(entry.address)).json.providers.length, 1);
  });

  test('a withdrawn object is not found, even if it is cached', async () => {
    const entry = object();
    await announce(entry);
    assert.equal((await resolve(entry.address)).status, 200);
    await eventually('cached', async () => (await resolve(entry.address)).json.source === 'cache');
    const reply = await service.call('POST', '/announce', { entries: [], withdraw: [entry.address] });
    assert.equal(reply.status, 200, reply.text);
    assertRefusal(await resolve(entry.address), 404, 'not_found');
  });

  test('a range withdraws the objects that are not listed', async () => {
    const entries = Array.from({ length: 8 }, object).toSorted((a, b) => (a.address < b.address ? -1 : 1));
    await announce(...entries);
    for (const { address } of entries) assert.equal((await resolve(address)).status, 200);
    const [first, second, third, ...others] = entries;
    const range = { after: first!.address, through: third!.address };
    const reply = await service.call('POST', '/announce', { entries: [third], range });
    assert.equal(reply.status, 200, reply.text);
    assertRefusal(await resolve(second!.address), 404, 'not_found');
    for (const { address } of [first!, third!, ...others]) assert.equal((await resolve(address)).status, 200);
  });

  const { address, size, media_type } = object();
  for (const [what, body] of [
    ['a URL', { entries: [{ address, size, media_type, url: 'http://192.0.2.1' }] }],
    ['an unknown member', { entries: [], epoch: '1' }],
    ['1001 entries', { entries: Array.from({ length: 1001 }, () => ({ address, size, media_type })) }],
    ['1001 withdrawals', { entries: [], withdraw: Array.from({ length: 1001 }, () => address) }],
    ['a malformed address', { entries: [{ address: address.toUpperCase(), size, media_type }] }],
    ['a negative size', { entries: [{ address, size: -1, media_type }] }],
    ['a fractional size', { entries: [{ address, size: 1.5, media_type }] }],
    ['no media type', { entries: [{ address, size, media_type: '' }] }],
    ['a line break in a media type', { entries: [{ address, size, media_type: 'text/plain\nprovider  x' }] }],
    ['announced and withdrawn', { entries: [{ address, size, media_type }], withdraw: [address] }],
    ['an empty range', { entries: [], range: { after: address, through: address } }],
    ['no entries', {}],
    ['a list', []],
  ] as const)
    test(`refused: ${what}`, async () => {
      assertRefusal(await service.call('POST', '/announce', body), 400, 'validation');
    });

  test('[index I-11] announcing needs its scope, and is refused before the body is read', async () => {
    assertRefusal(await service.send('POST', '/announce', { body: 'x'.repeat(1000) }), 401, 'unauthorized');
    const headers = await service.allow({ scopes: ['index:name'] });
    assertRefusal(await service.send('POST', '/announce', { headers }), 403, 'forbidden');
  });

  test('[index I-10] a body over 1 MiB and JSON with a bomb are refused', async () => {
    const headers = { ...(await service.allow()), 'content-type': 'application/json' };
    const send = (body: string) => service.send('POST', '/announce', { headers, body });
    assertRefusal(await send(`{"entries":[],"x":"${'x'.repeat(1024 * 1024)}"}`), 413, 'payload_too_large');
    assert.equal((await send('['.repeat(500_000))).status, 400);
    assert.equal((await send('{"entries":[],"entries":[],"__proto__":{}}')).status, 400);
  });

  test('a reindex begins a new epoch and empties the cache', async () => {
    const entry = object();
    const { epoch } = (await announce(entry)).json;
    await resolve(entry.address);
    await eventually('cached', async () => (await resolve(entry.address)).json.source === 'cache');
    const started = await service.call('POST', '/admin/reindex');
    assert.equal(started.status, 202, started.text);
    assert.equal(started.headers.location, `/admin/tasks/${started.json.id}`);
    await eventually('done', async () => {
      const { state, problem } = (await service.call('GET', started.headers.location!)).json;
      assert.notEqual(state, 'failed', problem);
      return state === 'done';
    });
    assert.notEqual((await announce()).json.epoch, epoch);
    assert.notEqual((await resolve(entry.address)).json.source, 'cache');
    assert.ok((await service.call('GET', '/admin/tasks')).json.tasks.length >= 1);
    assertRefusal(await service.call('GET', '/admin/tasks/none'), 404, 'not_found');
  });

  test('pins are idempotent, and only targets can be pinned', async () => {
    const { address: key } = object();
    for (const path of ['/admin/pin', '/admin/pin', '/admin/unpin', '/admin/unpin'])
      assert.equal((await service.call('POST', path, { key })).status, 204, path);
    for (const bad of ['x', 'b3:00', 'name:', 'name:UPPER', 'name:a@b'])
      assertRefusal(await service.call('POST', '/admin/pin', { key: bad }), 400, 'validation');
    assertRefusal(await service.call('POST', '/admin/pin', { key, ttl: 1 }), 400, 'validation');
    const headers = await service.allow({ scopes: ['index:admin'] });
    assertRefusal(await service.send('POST', '/admin/pin', { headers, body: '{}' }), 403, 'forbidden');
  });

  test('a pinned object stays cached beyond its time to live', async () => {
    const entry = object();
    await service.reload([...AMNESIA, `--index.storage_url=${STORAGE}`, '--cache.ttl_s=1']);
    await announce(entry);
    await service.call('POST', '/admin/pin', { key: entry.address });
    await eventually('cached', async () => (await resolve(entry.address)).json.source === 'cache');
    const until_ms = performance.now() + 1500;
    await eventually('the time has passed', async () => {
      assert.equal((await resolve(entry.address)).json.source, 'cache');
      return performance.now() > until_ms;
    });
  });
});

test('announcements beyond the quota are refused, and earlier objects stay', async () => {
  await using service = await startService({
    flags: [...AMNESIA, '--quotas.providers_max=2', '--quotas.providers_per_subject=2'],
  });
  const [first, second, third] = [object(), object(), object()];
  const announce = (...entries: AnnounceEntry[]) => service.call('POST', '/announce', { entries });
  assert.equal((await announce(first, second)).status, 200);
  assertRefusal(await announce(third), 507, 'storage_full');
  assert.equal((await announce(first, second)).status, 200, 'a repeated announcement needs no room');
});
