import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { kekFromText, masterKey, newMadeHow, sealBytes, unsealBytes } from './sealer.ts';

const { signal } = new AbortController();
const KEK = { kek: new Uint8Array(32).fill(1) };

test('a key is read from hex or base64, and nothing else passes or is repeated', () => {
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

test('scrypt parameters from a file cannot cost more than the limit', async () => {
  const unlock = { passphrase: 'long enough', scrypt: { log2_n: 10, r: 8, p: 1 } };
  const madeHow = newMadeHow(unlock);
  await masterKey(unlock, madeHow, signal);
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
      async () => masterKey(unlock, Uint8Array.from(madeHow).with(at, value), signal),
      (error) => isRonError(error, 'not_ready'),
    );
    assert.ok(performance.now() - started_ms < 1000);
  }
});

test('the default cost of a passphrase is 128 MiB', async () => {
  const unlock = { passphrase: 'long enough' };
  const [kind, log2_n, r, p] = newMadeHow(unlock);
  assert.deepEqual([kind, log2_n, r, p], [1, 17, 8, 1]);
  await masterKey(unlock, newMadeHow(unlock), signal);
});

test('sealed bytes open only under their key and context; sealing twice differs', async () => {
  const key = await masterKey(KEK, newMadeHow(KEK), signal);
  const other = await masterKey(KEK, newMadeHow(KEK), signal);
  const sealed = sealBytes(key, Buffer.from('here'), Buffer.from('secret'));
  assert.equal(Buffer.from(unsealBytes(key, Buffer.from('here'), sealed)).toString(), 'secret');
  assert.throws(() => unsealBytes(key, Buffer.from('there'), sealed));
  assert.throws(() => unsealBytes(other, Buffer.from('here'), sealed), 'another salt makes another key');
  assert.throws(() => unsealBytes(key, Buffer.from('here'), sealed.subarray(0, 20)));
  assert.notDeepEqual(sealBytes(key, Buffer.from('here'), Buffer.from('secret')), sealed);
});
