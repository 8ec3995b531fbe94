/** Three nodes of one network, each a whole service in this process, on loopback. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { formatAddress } from '@ron/proto';
import { eventually, tempDir } from '@ron/testkit';
import { networkKey } from '../../src/dht/libp2p/testing/test-node.ts';
import { nameSigner } from '../../src/publish/testing.ts';
import { startService, type TestIndex } from '../support.ts';

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url');
const networkOf = ({ index }: TestIndex) => index.network;
const addressOf = (byte: number) => formatAddress(new Uint8Array(32).fill(byte));
const entryOf = (byte: number) => ({ address: addressOf(byte), size: 5, media_type: 'text/plain' });

async function startNode(key_file: string, port: number, bootstrap?: string): Promise<TestIndex> {
  const node = await startService({
    flags: [
      '--dht.mode=join',
      `--dht.network_key_file=${key_file}`,
      `--index.storage_url=http://127.0.0.1:${port}`,
      // The machine may be busy: these tests are about results, not about time.
      '--dht.deadline_ms=20000',
      ...(bootstrap === undefined ? [] : [`--dht.bootstrap=${bootstrap}`]),
    ],
  });
  await eventually('the node listens for peers', () => networkOf(node).peers!.listening.length > 0);
  return node;
}

test(
  'objects and names of one node are found by another, with and without the third',
  { timeout: 120_000 },
  async () => {
    await using temp = await tempDir();
    const key_file = join(temp.path, 'network.key');
    await writeFile(key_file, networkKey(), { mode: 0o600 });
    await using first = await startNode(key_file, 7201);
    const bootstrap = networkOf(first).peers!.listening[0]!;
    await using second = await startNode(key_file, 7202, bootstrap);
    await using leaving = new AsyncDisposableStack();
    const third = leaving.use(await startNode(key_file, 7203, bootstrap));
    await eventually('all nodes know each other', () =>
      [first, second, third].every((node) => networkOf(node).known === 2),
    );

    assert.equal((await first.call('POST', '/announce', { entries: [entryOf(1)] })).status, 200);
    const found = JSON.parse((await second.send('GET', `/resolve/${addressOf(1)}?receipt=1`)).text);
    const { peer_id } = first.index.node_key;
    assert.deepEqual(
      found.providers.map(({ id, url }: { id: string; url: string }) => [id, url]),
      [[peer_id, 'http://127.0.0.1:7201']],
      'the object is found from the moment of its announcement',
    );
    assert.ok(
      found.receipt.peers.some(
        ({ peer, outcome }: { peer: string; outcome: string }) => peer === peer_id && outcome === 'answered',
      ),
    );
    await eventually('the sweep has stored the record at another node', async () => {
      const dht = networkOf(third).dht!;
      const { providers } = await dht.findProviders(addressOf(1), {
        signal: AbortSignal.timeout(5000),
        verdict: () => undefined,
      });
      return providers.some(({ reporters }) => reporters >= 2);
    });

    const signer = nameSigner();
    await first.call('PUT', '/trust/', { key: signer.key });
    const record = signer.record('docs/guide', { value: addressOf(1) });
    const body = { record: base64(record.record), signature: base64(record.signature) };
    assert.equal((await first.call('PUT', '/names/docs/guide', body)).status, 201);
    await eventually('the name is found by another node', async () => {
      const { status, json } = await second.send('GET', `/resolve/name:docs/guide@${signer.key}?fresh=1`);
      return status === 200 && json['address'] === addressOf(1);
    });

    await leaving.disposeAsync();
    await first.call('POST', '/announce', { entries: [entryOf(2)] });
    const without = JSON.parse((await second.send('GET', `/resolve/${addressOf(2)}`)).text);
    assert.deepEqual(
      without.providers.map(({ id }: { id: string }) => id),
      [peer_id],
      'a node that is gone does not hide the object',
    );
    const none = await second.send('GET', `/resolve/${addressOf(3)}`);
    assert.equal(none.status, 404);
  },
);
