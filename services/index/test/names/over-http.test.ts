/** Names, trust and the log over HTTP. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { NameDto, NamePageDto, TrustListDto } from '@ron/proto';
import { assertRefusal } from '@ron/testkit/service';
import { decodeBundle, parseNote, parseVkey, verifyNote } from '@ron/tlog';
import { checkpointSigner } from '../../src/node-key.ts';
import { signedDto } from '../../src/publish/name-dto.ts';
import { hex } from '../../src/publish/rules.ts';
import { nameSigner, valueOf } from '../../src/publish/testing.ts';
import type { StoredRecord } from '../../src/store/index-store.ts';
import { AMNESIA, startService, type TestIndex } from '../support.ts';
import { signal } from './support.ts';

const alice = nameSigner();
const bob = nameSigner();
const NOW_S = Math.floor(Date.now() / 1000);
const VERIFY = fileURLToPath(new URL('../../../../docs/verify-name.sh', import.meta.url));
const long = (chars: number): string => 'a'.repeat(chars);

suite('names over HTTP', () => {
  let service: TestIndex;
  before(async () => {
    service = await startService({ flags: AMNESIA });
    assert.equal((await service.call('PUT', '/trust/', { key: alice.key })).status, 204);
  });
  after(() => service[Symbol.asyncDispose]());
  const put = (record: StoredRecord, path = record.label) => service.call('PUT', `/names/${path}`, signedDto(record));
  const read = async (path: string): Promise<NameDto> => {
    const reply = await service.send('GET', `/names/${path}`);
    assert.equal(reply.status, 200, reply.body.toString());
    return JSON.parse(reply.body.toString()) as NameDto;
  };

  test('a record is published, read back without a capability, and listed', async () => {
    const one = alice.record('docs/readme');
    const two = alice.record('docs/readme', { after: one });
    const created = await put(one);
    assert.equal(created.status, 201, created.body.toString());
    assert.equal((await put(one)).status, 200);
    assert.equal((await put(two)).status, 201);
    const dto = await read('docs/readme?history=1');
    assert.deepEqual([dto.seq, dto.key, dto.hash, dto.conflict], [2, alice.key, hex(two.hash), false]);
    assert.deepEqual({ record: dto.record, signature: dto.signature }, signedDto(two));
    assert.deepEqual(dto.history, [signedDto(one)]);
    assert.deepEqual(await read(`docs/readme@${alice.key}?history=1`), dto);
    assertRefusal(await service.send('GET', `/names/docs/readme@${bob.key}`), 404, 'not_found');
    assertRefusal(await service.send('GET', '/names/unknown'), 404, 'not_found');

    for (const label of ['docs/a', 'docs/b', 'docs-old']) assert.equal((await put(alice.record(label))).status, 201);
    const labels: string[] = [];
    for (let next: string | undefined = ''; next !== undefined;) {
      const query = next === '' ? '' : `&after=${next}`;
      const page = JSON.parse(
        (await service.call('GET', `/names?prefix=docs&limit=2${query}`)).body.toString(),
      ) as NamePageDto;
      labels.push(...page.names.map(({ label }) => label));
      next = page.next;
    }
    assert.deepEqual(labels, ['docs/a', 'docs/b', 'docs/readme']);
  });

  test('a record that does not follow the current one gets 409 with it', async () => {
    const one = alice.record('conflict');
    await put(one);
    const reply = await put(alice.record('conflict'));
    assert.equal(reply.status, 409);
    const { current } = JSON.parse(reply.body.toString()) as { current: NameDto };
    assert.deepEqual({ record: current.record, signature: current.signature }, signedDto(one));
    const none = await put(alice.record('gap', { after: one }));
    assert.equal(none.status, 409);
    assert.equal((JSON.parse(none.body.toString()) as { current: null }).current, null);
  });

  test('bad input gets a problem that names the reason', async () => {
    const good = alice.record('bad/input');
    const cases: [string, unknown, RegExp][] = [
      ['Bad', signedDto(good), /upper case/],
      ['b%C3%A4d', signedDto(good), /path|another character/],
      [long(256), signedDto(good), /255/],
      ['bad//input', signedDto(good), /empty/],
      ['bad/input/', signedDto(good), /empty/],
      ['bad/other', signedDto(good), /another label/],
      ['bad/input@key', signedDto(good), /another character/],
      ['bad/input', { ...signedDto(good), signature: signedDto(alice.record('x')).signature }, /signature/],
      ['bad/input', { ...signedDto(good), signature: '' }, /signature/],
      ['bad/input', { ...signedDto(good), record: signedDto(good).record.slice(0, -2) }, /CBOR/],
      ['bad/input', { ...signedDto(good), record: `${signedDto(good).record}AA` }, /CBOR/],
      ['bad/input', { ...signedDto(good), record: 'A'.repeat(2000) }, /record/],
      ['bad/input', { ...signedDto(good), record: '!' }, /record/],
      ['bad/input', { ...signedDto(good), url: 'http://x' }, /url|unknown|additional/i],
      ['bad/input', { record: signedDto(good).record }, /signature/],
      ['bad/input', [], /object|array/],
      ['bad/input', signedDto(alice.record('bad/input', { not_after: NOW_S - 1 })), /past/],
      ['bad/input', signedDto(alice.record('bad/input', { not_after: NOW_S + 800 * 86_400 })), /2 years/],
    ];
    for (const [path, body, reason] of cases) {
      const reply = await service.call('PUT', `/names/${path}`, body);
      assert.equal(reply.status, 400, `${path} ${JSON.stringify(body)} ${reply.body.toString()}`);
      assert.match(reply.body.toString(), reason, path);
    }
    for (const path of ['Bad', 'a//b', `a@${long(64).toUpperCase()}`, 'a@b']) {
      assert.equal((await service.send('GET', `/names/${path}`)).status, 400, path);
    }
    for (const query of ['prefix=a/', 'limit=0', 'limit=10000', 'after=x', 'x=1']) {
      assert.equal((await service.call('GET', `/names?${query}`)).status, 400, query);
    }
    assert.equal((await service.call('PUT', '/trust/a', { key: 'AB' })).status, 400);
    assert.equal((await service.call('PUT', '/trust/A', { key: alice.key })).status, 400);
  });

  test('index:name publishes below its caveat and cannot change trust; reading names needs no capability', async () => {
    const limited = await service.allow({ scopes: ['index:name'], caveats: ['name ^= team/'] });
    const headers = { ...limited, 'content-type': 'application/json' };
    const send = (method: string, path: string, body?: unknown) =>
      service.send(method, path, { headers, ...(body !== undefined && { body: JSON.stringify(body) }) });
    assert.equal((await send('PUT', '/names/team/a', signedDto(alice.record('team/a')))).status, 201);
    assertRefusal(await send('PUT', '/names/teams', signedDto(alice.record('teams'))), 403, 'forbidden');
    assertRefusal(await send('PUT', '/trust/team/a', { key: bob.key }), 403, 'forbidden');
    assertRefusal(await send('DELETE', '/trust/'), 403, 'forbidden');
    assertRefusal(await send('GET', '/names'), 403, 'forbidden');
    assertRefusal(await service.send('GET', '/names'), 401, 'unauthorized');
    assertRefusal(await service.send('GET', '/log/checkpoint'), 401, 'unauthorized');
    assertRefusal(await service.send('GET', '/trust'), 401, 'unauthorized');
  });

  test('the trust list maps prefixes to keys, and a change applies to the next request', async () => {
    await put(alice.record('moving/x'));
    await put(bob.record('moving/x'));
    assert.equal((await read('moving/x')).key, alice.key);
    assert.equal((await service.call('PUT', '/trust/moving', { key: bob.key })).status, 204);
    assert.equal((await read('moving/x')).key, bob.key);
    const { trust } = JSON.parse((await service.call('GET', '/trust')).body.toString()) as TrustListDto;
    assert.deepEqual(trust, [
      { prefix: '', key: alice.key },
      { prefix: 'moving', key: bob.key },
    ]);
    assert.equal((await service.call('DELETE', '/trust/moving')).status, 204);
    assertRefusal(await service.call('DELETE', '/trust/moving'), 404, 'not_found');
    assert.equal((await read('moving/x')).key, alice.key);
  });

  test('a forked name is reported with both records', async () => {
    const one = alice.record('forked');
    await put(one);
    const { names } = service.index;
    const other = alice.record('forked');
    await names.adopt(alice.key, 'forked', [valueOf(other)], signal);
    const dto = await read('forked');
    assert.equal(dto.conflict, true);
    const records = new Set([one, other].map((each) => signedDto(each).record));
    assert.deepEqual(new Set([dto.record, dto.rival?.record]), records);
    assert.equal(await service.metric('index_name_forks_total'), 1);
    // Plain OpenSSL confirms that the key signed both.
    const { status, stdout } = spawnSync('sh', [VERIFY], { input: JSON.stringify(dto), encoding: 'utf8' });
    assert.equal(status, 2, stdout);
    assert.equal(stdout.match(/^valid: seq 1 forked, key /gm)?.length, 2, stdout);
    assert.match(stdout, /^FORKED: /m);
    const winner = hex(one.hash) === dto.hash ? one : other;
    assert.equal((await put(alice.record('forked', { after: winner }))).status, 201);
    assert.equal((await read('forked')).conflict, false, 'until the next clean record');
  });

  test('the log is served as tiles, signed by the node key', async () => {
    const { names, node_key } = service.index;
    await names.log!.writeCheckpoint(signal);
    const note = await service.call('GET', '/log/checkpoint');
    const { vkey } = checkpointSigner(note.body.toString().split('\n')[0]!, node_key);
    assert.equal(verifyNote(parseNote(note.body.toString()), [parseVkey(vkey)]).length, 1);
    const { size } = names.log!.checkpoint!;
    const bundle = await service.call('GET', `/log/tile/entries/000.p/${size}`);
    assert.equal(bundle.status, 200);
    const [first] = decodeBundle(bundle.body)!;
    assert.match(Buffer.from(first!).toString(), /^\{"v":1,"at":\d+,"by":\[".*"\],"kind":"trust","prefix":""/);
    assertRefusal(await service.call('GET', '/log/tile/0/999'), 404, 'not_found');
  });
});
