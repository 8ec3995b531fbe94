import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { formatAddress } from '@ron/proto';
import { generateKeyPair } from '@libp2p/crypto/keys';
import { peerIdFromPrivateKey } from '@libp2p/peer-id';
import { commonPrefixBits, compareDistance, nameKey, positionOfKey, positionOfPeer, providerKey } from './keys.ts';
import { peerIdOf } from './testing/network.ts';

const sha256 = (...parts: (Uint8Array | string)[]): Buffer => {
  const digest = createHash('sha256');
  for (const part of parts) digest.update(part);
  return digest.digest();
};

test('the key of an address is the multihash that the documentation states', () => {
  const hash = Buffer.alloc(32, 7);
  const key = Buffer.from(providerKey(formatAddress(hash)));
  assert.equal(key.toString('hex'), `1220${sha256('ron/index/v1', hash).toString('hex')}`);
});

test('the key of a name is the path that the documentation states', () => {
  const signer = Buffer.alloc(32, 9);
  const digest = sha256('ron/name/v1', signer, 'docs/a');
  const path = Buffer.from(nameKey(signer.toString('hex'), 'docs/a')).toString();
  assert.match(path, /^\/ron-name\/[a-z2-7]{52}$/);
  const bits = Array.from(path.slice('/ron-name/'.length), (char) =>
    'abcdefghijklmnopqrstuvwxyz234567'.indexOf(char).toString(2).padStart(5, '0'),
  );
  assert.equal(
    BigInt(`0b${bits.join('').slice(0, 256)}`).toString(16),
    BigInt(`0x${digest.toString('hex')}`).toString(16),
  );
});

test('a peer has the position that kad-dht gives it', async () => {
  const id = peerIdFromPrivateKey(await generateKeyPair('Ed25519'));
  assert.deepEqual(Buffer.from(positionOfPeer(id.toString())!), sha256(id.toMultihash().bytes));
  for (let at = 0; at < 5000; at += 1) positionOfPeer(peerIdOf(`peer ${at}`));
  assert.deepEqual(
    Buffer.from(positionOfPeer(id.toString())!),
    sha256(id.toMultihash().bytes),
    'after it was forgotten',
  );
  assert.equal(positionOfPeer('not a peer id'), undefined);
  assert.equal(positionOfPeer('1'.repeat(1_000_000)), undefined);
});

test('distances are compared by XOR', () => {
  const [target, near, far] = [Buffer.alloc(32), Buffer.alloc(32), Buffer.alloc(32)];
  near[31] = 1;
  far[0] = 1;
  assert.ok(compareDistance(target, near, far) < 0);
  assert.ok(compareDistance(far, near, far) > 0);
  assert.equal(compareDistance(target, near, near), 0);
  assert.equal(commonPrefixBits(target, near), 255);
  assert.equal(commonPrefixBits(target, far), 7);
  assert.equal(commonPrefixBits(far, far), 256);
  assert.equal(positionOfKey(Buffer.from('a')).length, 32);
});
