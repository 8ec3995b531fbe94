import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { kekFromText, newKeyBox, newMaster, openKeyBox, sealBytes, unsealBytes } from './sealer.ts';

const { signal } = new AbortController();
const KEK = { kek: new Uint8Array(32).fill(1) };

test('a key is parsed from hex or base64; other text is refused and not echoed', () => {
  const hex = '00ff'.repeat(16);
  assert.deepEqual(kekFromText(`${hex}\n`), Buffer.from(hex, 'hex'));
  assert.deepEqual(kekFromText(Buffer.from(hex, 'hex').toString('base64')), Buffer.from(hex, 'hex'));
  for (const text of ['', 'hunter2hunter2', hex.slice(2), `${hex}00`, `${'A'.repeat(42)}!`, 'g'.repeat(64)]) {
    assert.throws(
      () => kekFromText(text),
      (error) => isRonError(error, 'validation') && (text === '' || !error.message.includes(text)),
    );
  }
});

const HERE = Buffer.from('here');

test('scrypt parameters from a file cannot exceed the limits', async () => {
  const unlock = { passphrase: 'long enough', scrypt: { log2_n: 10, r: 8, p: 1 } };
  const box = await newKeyBox(unlock, HERE, newMaster(), signal);
  await openKeyBox(unlock, HERE, box, signal);
  for (const [at, value] of [
    [1, 0],
    [1, 20],
    [1, 255],
    [2, 0],
    [2, 255],
    [3, 0],
    [3, 255],
  ] as const) {
    const started_ms = performance.now();
    await assert.rejects(
      async () => openKeyBox(unlock, HERE, Uint8Array.from(box).with(at, value), signal),
      (error) => isRonError(error, 'not_ready'),
    );
    assert.ok(performance.now() - started_ms < 1000);
  }
});

test('the default cost of a passphrase is 128 MiB', async () => {
  const box = await newKeyBox({ passphrase: 'long enough' }, HERE, newMaster(), signal);
  assert.deepEqual([...box.subarray(0, 4)], [1, 17, 8, 1]);
});

test('a key box opens only with its own secret and context', async () => {
  const master = newMaster();
  const box = await newKeyBox(KEK, HERE, master, signal);
  assert.ok((await openKeyBox(KEK, HERE, box, signal)).equals(master));
  assert.ok(!Buffer.from(box).includes(master.export()));
  await assert.rejects(openKeyBox(KEK, Buffer.from('there'), box, signal));
  await assert.rejects(openKeyBox({ kek: new Uint8Array(32).fill(2) }, HERE, box, signal));
  await assert.rejects(openKeyBox({ kek: new Uint8Array(31) }, HERE, box, signal), /32 bytes/);
});

test('sealed bytes open only under their key and context; sealing twice differs', () => {
  const master = newMaster();
  const sealed = sealBytes(master, HERE, Buffer.from('secret'));
  assert.equal(Buffer.from(unsealBytes(master, HERE, sealed)).toString(), 'secret');
  assert.throws(() => unsealBytes(master, Buffer.from('there'), sealed));
  assert.throws(() => unsealBytes(newMaster(), HERE, sealed));
  assert.throws(() => unsealBytes(master, HERE, sealed.subarray(0, 20)));
  assert.notDeepEqual(sealBytes(master, HERE, Buffer.from('secret')), sealed);
});
