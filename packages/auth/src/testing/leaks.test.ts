import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Bench } from '../../test/support.ts';
import { attenuate } from '../capability/capability.ts';
import { Leaks } from './leaks.ts';

test('a secret is found in every encoding, and named without being repeated', () => {
  const key = Buffer.from('8f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0', 'hex');
  const spellings = [key.toString('hex'), key.toString('base64'), key.toString('base64url'), key.toString('latin1')];
  for (const spelling of [...spellings, key.toString('hex').toUpperCase()]) {
    const leaks = new Leaks();
    leaks.shown('the log', `{"msg":"x","detail":"${spelling}"}`);
    leaks.secret('the key', key);
    assert.deepEqual(leaks.findings(), ['the key in the log']);
  }
  const leaks = new Leaks();
  leaks.secret('the key', key);
  leaks.shown('the log', key.toString('hex').slice(2));
  assert.deepEqual(leaks.findings(), []);
});

test('a capability of any issuer is found, whole or truncated; its id, addresses and hashes are not', async () => {
  const bench = new Bench();
  const token = await bench.token({ subject: 'alice' });
  for (const shown of [token, attenuate(token, ['bytes <= 1']), `Bearer ${token}`, token.slice(0, -10)]) {
    const leaks = new Leaks();
    leaks.shown('an answer', JSON.stringify({ detail: `what ${shown} says` }));
    assert.deepEqual(leaks.findings(), ['a capability in an answer']);
  }
  const leaks = new Leaks();
  leaks.shown('the log', `AgJ${'A'.repeat(80)} b3:${'0'.repeat(64)} ron1.k.alice.0`);
  assert.deepEqual(leaks.findings(), []);
});
