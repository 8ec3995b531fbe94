/** `ron audit prune`: copies the log, removes old entries, and the rest still verifies, over HTTP and from the directory. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { KmsClient } from '@ron/client';
import { ron, temporaryDir, up } from './support.ts';

const B3 = 'af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262';

test('old entries are archived and removed, and both parts verify', async (t) => {
  const work = await temporaryDir(t);
  const dir = join(work, 'node');
  const node = await up(t, dir);
  const run = (...args: string[]) => ron(t, [...args, '--dir', dir], { cwd: work });
  const kid = (await run('keys', 'create', '--tenant', 'acme')).text.trim();
  const url = node.services['kms']!;
  const { kms: capability } = JSON.parse(await readFile(join(dir, 'root.cap'), 'utf8')) as { kms: string };
  const client = new KmsClient({ url, capability });
  for (let batch = 0; batch < 5; batch++)
    await client.signMany(Array.from({ length: 128 }, () => ({ kid, payload_b3: B3 })));
  await client.sign({ kid, payload_b3: B3 }, { wait: 'checkpoint' });

  const unasked = await run('audit', 'prune', '--before', '600');
  assert.deepEqual([unasked.code, /with --yes/.test(unasked.stderr)], [64, true], unasked.stderr);
  for (const wrong of [[], ['--before', '1', '--keep', '1d'], ['--before', 'x'], ['--keep', 'soon']])
    assert.equal((await run('audit', 'prune', ...wrong, '--yes')).code, 64, wrong.join(' '));
  const young = await run('audit', 'prune', '--keep', '1d', '--yes');
  assert.match(young.stderr, /nothing to remove/);

  const archive = join(work, 'archive');
  const pruned = await run('audit', 'prune', '--keep', '0s', '--archive', archive, '--yes', '--json');
  assert.equal(pruned.code, 0, pruned.stderr);
  const { before, freed_bytes } = JSON.parse(pruned.text) as { before: number; freed_bytes: number };
  assert.deepEqual([before >= 512, before % 256, freed_bytes > 50_000], [true, 0, true], pruned.text);
  const places = [`${url}/v1/kms/audit`, join(dir, 'kms/data/audit')];
  for (const place of places) {
    const verified = await run('audit', 'verify', place);
    assert.equal(verified.code, 0, verified.stderr);
    assert.match(verified.text, new RegExp(`^pruned +entries before ${before} were removed`, 'm'));
  }
  const vkeys = (await client.auditKeys()).vkeys.flatMap((vkey) => ['--vkey', vkey]);
  const whole = await run('audit', 'verify', archive, ...vkeys, '--json');
  assert.equal(whole.code, 0, whole.stderr);
  assert.equal((JSON.parse(whole.text) as { first: number }).first, 0);
});
