/** [kms I-4] A disk that does not answer: requests end at their deadline, and the service works once the disk is back. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { join } from 'node:path';
import { FaultyDisk } from '@ron/log/testing';
import { FaultyStore } from './faulty-store.ts';
import { assertRefusal } from '@ron/testkit/service';
import { B3, startService } from './support.ts';
import { eventually, tempDir } from '@ron/testkit';

test('operations that write a file end at their deadline while the disk hangs', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const disk = new FaultyDisk();
  const store = await FaultyStore.open(dir);
  await using kms = await startService({ dir, fs: disk, store, flags: ['--audit.mode=strict'] });
  const kid = await kms.create('ed25519');
  disk.hold('');
  store.hold();
  // The disk answers no call before `mend`: without a deadline these would wait indefinitely.
  const replies = await Promise.all([
    kms.post('/keys', { tenant: 'acme', purpose: 'p', alg: 'ed25519' }),
    kms.post(`/keys/${encodeURIComponent(kid)}/rotate`, {}),
    kms.post('/sign', { kid, payload_b3: B3 }),
  ]);
  for (const reply of replies) assertRefusal(reply, 504, 'timeout');
  assert.equal((await kms.get(`/keys/${encodeURIComponent(kid)}`)).status, 200, 'reads need no disk');
  disk.mend();
  store.mend();
  await eventually('it signs again', async () => (await kms.post('/sign', { kid, payload_b3: B3 })).status === 200);
});
