/** Keys, signatures and the audit log from the command line, against a real node. */
import assert from 'node:assert/strict';
import { appendFile, cp, readFile, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { ron, temporaryDir, up } from './support.ts';

test('a file is signed and verified, keys are created, rotated and listed, and the audit log is verified', async (t) => {
  const work = await temporaryDir(t);
  const dir = join(work, 'node');
  const node = await up(t, dir);
  const run = (...args: string[]) => ron(t, [...args, '--dir', dir], { cwd: work });
  await writeFile(join(work, 'report.txt'), 'all is well\n');

  const none = await run('sign', 'report.txt');
  assert.equal(none.code, 64);
  assert.match(none.stderr, /--key is required: found 0 signing keys; create one with `ron keys create`/);
  const made = await run('keys', 'create', '--tenant', 'acme');
  assert.equal(made.code, 0, made.stderr);
  const kid = made.text.trim();
  assert.match(kid, /^acme\/docs\/hybrid\/[0-9a-f-]{36}#v1$/);
  assert.equal((await run('sign', 'report.txt')).text, 'report.txt.sig\n');
  const good = await run('verify', 'report.txt', '--tenant', 'acme');
  assert.equal(good.text, `valid: ${kid} (ed25519, ml-dsa-65)\n`, good.stderr);
  assert.equal((await run('verify', 'report.txt', '--key', kid.slice(0, -3))).code, 0);

  const rotated = JSON.parse((await run('keys', 'rotate', kid, '--json')).text) as { kid: string; previous: string };
  assert.equal(rotated.previous, kid);
  assert.equal((await run('verify', 'report.txt', '--tenant', 'acme')).code, 0, 'the older version still verifies');
  const other = await run('verify', 'report.txt', '--key', rotated.kid);
  assert.equal(other.code, 65);
  assert.match(other.stderr, /signed by .*#v1, not by .*#v2/);
  assert.match((await run('keys', 'list')).text, /^acme\/docs\/hybrid\/.*#v2 {2}software:sealed-file, #v1 #v2$/m);
  const twice = await run('keys', 'rotate', kid);
  assert.match(twice.stderr, /version 1 is retired/);

  await appendFile(join(work, 'report.txt'), 'or is it\n');
  const changed = await run('verify', 'report.txt', '--tenant', 'acme');
  assert.deepEqual([changed.code, changed.stderr], [65, 'ron: report.txt is not the file that was signed\n']);
  const signature = JSON.parse(await readFile(join(work, 'report.txt.sig'), 'utf8')) as { sigs: object[] };
  await writeFile(join(work, 'half.sig'), JSON.stringify({ ...signature, sigs: signature.sigs.slice(1) }));
  await writeFile(join(work, 'report.txt'), 'all is well\n');
  const half = await run('verify', 'report.txt', '-s', 'half.sig', '--tenant', 'acme');
  assert.equal(half.code, 65);
  assert.match(half.stderr, /no valid signature of ed25519/);
  await writeFile(join(work, 'bad.sig'), '{}');
  assert.match(
    (await run('verify', 'report.txt', '-s', 'bad.sig')).stderr,
    /bad\.sig is not a signature file of `ron sign`/,
  );

  const overHttp = await run('audit', 'verify', `${node.services['kms']}/v1/kms/audit`);
  assert.equal(overHttp.code, 0, overHttp.stderr);
  assert.match(overHttp.text, /^entries +\d+, all verified$/m);
  node.process.kill('SIGINT');
  await node.process.ended;

  const log = join(dir, 'kms/data/audit');
  const offline = await run('audit', 'verify', '--json');
  assert.equal(offline.code, 0, offline.stderr);
  const { entries, unsigned } = JSON.parse(offline.text) as { entries: number; unsigned: number };
  assert.ok(entries >= 5);
  assert.equal(unsigned, 0, 'the last checkpoint covers everything');
  const copy = join(work, 'copy');
  await cp(log, copy, { recursive: true });
  const bytes = await readFile(join(copy, 'entries'));
  bytes[Math.floor(bytes.length / 2)]! ^= 1;
  await writeFile(join(copy, 'entries'), bytes);
  const flipped = await ron(t, ['audit', 'verify', copy], { cwd: work });
  assert.equal(flipped.code, 65);
  assert.match(flipped.stderr, /damage at/);
  await truncate(join(copy, 'entries'), 100);
  assert.equal((await ron(t, ['audit', 'verify', copy], { cwd: work })).code, 65);
  assert.equal((await ron(t, ['audit', 'verify', join(work, 'nowhere')], { cwd: work })).code, 66);
});
