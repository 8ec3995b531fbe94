import assert from 'node:assert/strict';
import { generateKeyPairSync, sign } from 'node:crypto';
import { test } from 'node:test';
import { conflictOf, IndexClient } from '@ron/client';
import { isRonError, sched } from '@ron/kernel';
import { formatAddress, type Address, type SignedNameDto, type Target } from '@ron/proto';
import { encodeNameRecord, signedNameBytes } from '@ron/proto/names';
import { eventually } from '@ron/testkit';
import { startIndex } from '@ron/testkit/service';

const [A, B] = [formatAddress(new Uint8Array(32).fill(1)), formatAddress(new Uint8Array(32).fill(2))];
const NAME: Extract<Target, { kind: 'name' }> = { kind: 'name', label: 'docs/readme', key: undefined };

test('the client covers every operation of the service', async (t) => {
  const { url, token } = await startIndex(t);
  const client = new IndexClient({ url, capability: token });
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const key = publicKey.export({ type: 'spki', format: 'der' }).subarray(-32).toString('hex');
  const signed = (value: Address, seq: number, previous?: string): SignedNameDto => {
    const not_after = Math.floor(sched.wall_ms() / 1000) + 3600;
    const bytes = encodeNameRecord({ key, label: NAME.label, value, seq, not_after, ttl_s: 60, previous });
    const text = (each: Uint8Array): string => Buffer.from(each).toString('base64url');
    return { record: text(bytes), signature: text(sign(null, signedNameBytes(bytes), privateKey)) };
  };

  await client.setTrust({ prefix: '', key });
  await client.setTrust({ prefix: 'docs', key });
  assert.deepEqual(
    (await client.trust()).map(({ prefix }) => prefix),
    ['', 'docs'],
  );
  await client.removeTrust('docs');
  await assert.rejects(client.removeTrust('docs'), (error) => isRonError(error, 'not_found'));

  const { epoch } = await client.announce({
    entries: [A, B].map((address) => ({ address, size: 1, media_type: 'a/b' })),
  });
  const first = await client.putName(NAME.label, signed(A, 1));
  await client.putName(NAME.label, first.signed);
  assert.equal((await client.resolve(NAME)).address, A);
  await client.putName(NAME.label, signed(B, 2, first.hash));
  const found = await client.resolve(NAME, { receipt: true });
  assert.deepEqual([found.address, found.name?.seq, found.manifest.size], [B, 2, 1]);
  assert.equal(typeof found.receipt?.took_ms, 'number');
  const late = await client.putName(NAME.label, signed(A, 2, first.hash)).catch((error: unknown) => error);
  assert.equal((await conflictOf(late, NAME))?.record.value, B);
  const { history } = await client.name({ label: NAME.label, key }, { history: true });
  assert.deepEqual(
    history.map(({ record }) => record.value),
    [A],
  );
  const listed = await Array.fromAsync(client.names({ prefix: 'docs' }));
  assert.deepEqual(
    listed.map(({ record }) => record.seq),
    [2],
  );
  await assert.rejects(client.name({ label: 'other' }), (error) => isRonError(error, 'not_found'));

  assert.equal((await client.providers(A, { limit: 5, min_freshness_s: 60 })).address, A);
  assert.ok(Array.isArray(await client.routing(A)));
  await client.pin(NAME);
  await client.unpin(NAME);
  assert.equal((await client.dhtStatus()).mode, 'standalone');
  const { id } = await client.reindex();
  await eventually('the reindex ends', async () => (await client.task(id)).state === 'done');
  assert.notEqual((await client.announce({ entries: [], withdraw: [A] })).epoch, epoch);
});
