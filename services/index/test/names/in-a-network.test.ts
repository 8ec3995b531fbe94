/** Names between nodes that share a DHT: found elsewhere, not rolled back, and not forked in silence. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import type { NameDto } from '@ron/proto';
import { eventually, tempDir, type TempDir } from '@ron/testkit';
import { nameKey } from '../../src/dht/keys.ts';
import { signedDto } from '../../src/publish/name-dto.ts';
import { hex } from '../../src/publish/rules.ts';
import { nameSigner, valueOf } from '../../src/publish/testing.ts';
import type { StoredRecord } from '../../src/store/index-store.ts';
import { AMNESIA, startService, type TestIndex } from '../support.ts';
import { signal } from './support.ts';

const alice = nameSigner();

suite('names in a network', () => {
  let temp: TempDir;
  let nodes: TestIndex[];
  before(async () => {
    temp = await tempDir();
    const file = join(temp.path, 'network-key');
    await writeFile(file, `/key/swarm/psk/1.0.0/\n/base16/\n${'5a'.repeat(32)}\n`, { mode: 0o600 });
    const joined = [...AMNESIA, '--dht.mode=join', `--dht.network_key_file=${file}`];
    const first = await startService({ flags: joined });
    const { peers } = first.index.network;
    await eventually('the first node listens', () => (peers?.listening.length ?? 0) > 0);
    const flags = [...joined, `--dht.bootstrap=${peers!.listening[0]}`];
    nodes = [first, ...(await Promise.all([startService({ flags }), startService({ flags })]))];
    for (const { index } of nodes) await eventually('all know each other', () => index.network.known >= 2);
  });
  after(async () => {
    for (const node of nodes) await node[Symbol.asyncDispose]();
    await temp[Symbol.asyncDispose]();
  });

  const put = (node: TestIndex, record: StoredRecord) => node.call('PUT', `/names/${record.label}`, signedDto(record));
  const read = async (node: TestIndex, label: string): Promise<NameDto | undefined> => {
    const reply = await node.send('GET', `/names/${label}@${alice.key}`);
    return reply.status === 200 ? (JSON.parse(reply.body.toString()) as NameDto) : undefined;
  };
  /** One node stores a value at another one, past its own rules. */
  const push = (from: TestIndex, to: TestIndex, record: StoredRecord): Promise<void> => {
    const { peers } = to.index.network;
    const target = { id: peers!.self, addrs: peers!.listening };
    return from.index.network.peers!.putValue(target, nameKey(record.key, record.label), valueOf(record), signal);
  };

  test('a published name is found at other nodes, and a replay is refused everywhere', async () => {
    const [a, b, c] = nodes as [TestIndex, TestIndex, TestIndex];
    const one = alice.record('shared');
    const two = alice.record('shared', { after: one });
    for (const record of [one, two]) assert.equal((await put(a, record)).status, 201);
    await eventually('the other nodes have the record', async () => (await read(c, 'shared'))?.seq === 2);
    const replayed = await put(b, one);
    assert.equal(replayed.status, 409, 'a node that did not publish it reads a quorum first');
    assert.equal((JSON.parse(replayed.body.toString()) as { current: NameDto }).current.hash, hex(two.hash));
    await assert.rejects(push(b, c, one), 'the validator refuses a lower seq');
    assert.equal((await read(c, 'shared'))?.seq, 2);
    const three = alice.record('shared', { after: two });
    assert.equal((await put(b, three)).status, 201, 'the chain goes on at another node');
  });

  test('a record that contradicts an own name is reported with both records', async () => {
    const [a, b] = nodes as [TestIndex, TestIndex];
    const [mine, other] = [alice.record('forked'), alice.record('forked')];
    assert.equal((await put(a, mine)).status, 201);
    await push(b, a, other);
    const dto = await read(a, 'forked');
    assert.equal(dto?.conflict, true);
    const records = new Set([mine, other].map((each) => signedDto(each).record));
    assert.deepEqual(new Set([dto?.record, dto?.rival?.record]), records);
    assert.equal(await a.metric('index_name_forks_total'), 1);
  });
});
