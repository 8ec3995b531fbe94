import assert from 'node:assert/strict';
import { createPublicKey, verify } from 'node:crypto';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { realFileSystem } from '@ron/log';
import { tempDirFor } from '@ron/testkit';
import { generateKeyPairFromSeed } from '@libp2p/crypto/keys';
import { peerIdFromPrivateKey } from '@libp2p/peer-id';
import { nodeKeyOf, openNodeKey } from './node-key.ts';

const { signal } = new AbortController();
const fs = realFileSystem;

test('the key of a node survives a restart, sealed in a file for its owner only', async (t) => {
  const dir = tempDirFor(t);
  const first = await openNodeKey({ dir, fs, signal });
  const again = await openNodeKey({ dir, fs, signal });
  assert.equal(again.peer_id, first.peer_id);
  assert.equal(statSync(join(dir, 'node-key')).mode & 0o077, 0);
  const file = readFileSync(join(dir, 'node-key'));
  const seed = Buffer.from(first.exportSeed());
  assert.ok(!file.includes(seed) && !file.includes(seed.toString('base64')));
  const message = Buffer.from('text');
  const spki = Buffer.concat([Buffer.from('302a300506032b6570032100', 'hex'), first.public_key]);
  assert.ok(
    verify(null, message, createPublicKey({ key: spki, format: 'der', type: 'spki' }), again.sign(message)),
    'a signature verifies with the public key',
  );
  file[file.length - 1]! ^= 1;
  writeFileSync(join(dir, 'node-key'), file);
  await assert.rejects(openNodeKey({ dir, fs, signal }), { code: 'not_ready' });
});

test('RON_KEK is not part of the identity', async (t) => {
  const dir = tempDirFor(t);
  const before = process.env['RON_KEK'];
  t.after(() => (before === undefined ? delete process.env['RON_KEK'] : (process.env['RON_KEK'] = before)));
  process.env['RON_KEK'] = '11'.repeat(32);
  const { peer_id } = await openNodeKey({ dir, fs, signal });
  process.env['RON_KEK'] = '22'.repeat(32);
  assert.equal((await openNodeKey({ dir, fs, signal })).peer_id, peer_id);
});

test('the peer id equals that of libp2p, and in amnesia each start has another', async () => {
  const seed = Buffer.alloc(32, 7);
  const expected = peerIdFromPrivateKey(await generateKeyPairFromSeed('Ed25519', Uint8Array.from(seed))).toString();
  assert.equal(nodeKeyOf(seed).peer_id, expected);
  assert.match(expected, /^12D3KooW/);
  const [one, two] = [
    await openNodeKey({ dir: undefined, fs, signal }),
    await openNodeKey({ dir: undefined, fs, signal }),
  ];
  assert.notEqual(one.peer_id, two.peer_id);
});
