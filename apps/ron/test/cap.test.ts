/** `ron cap` with a node that has passport. */
import assert from 'node:assert/strict';
import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { inspectToken } from '@ron/auth';
import { eventually } from '@ron/testkit';
import { ron, temporaryDir, up } from './support.ts';

test('a capability is issued, shown, narrowed, used and revoked', async (t) => {
  const dir = join(await temporaryDir(t), 'node');
  await up(t, dir);
  const file = join(dir, 'alice.cap');
  const issue = [
    'cap',
    'issue',
    '--scopes',
    'storage:put,storage:get',
    '--subject',
    'alice',
    '--ttl',
    '1h',
    '--dir',
    dir,
  ];
  const issued = await ron(t, [...issue, '-o', file, 'bytes <= 1000']);
  assert.equal(issued.code, 0, issued.stderr);
  assert.equal(issued.text, 'issued to alice\n');
  assert.equal((await stat(file)).mode & 0o777, 0o600);
  const show = async (): Promise<string> =>
    (await ron(t, ['cap', 'show', '--dir', dir, '--capability-file', file])).text;
  assert.match(await show(), /subject +alice\n(?:.*\n)*caveat +bytes <= 1000\nstate +valid\n/);
  const put = (from = file) => ron(t, ['put', '-', '--dir', dir, '--capability-file', from], { input: 'hello' });
  assert.equal((await put()).code, 0);
  const narrow = join(dir, 'narrow.cap');
  const words = ['cap', 'attenuate', 'scopes in storage:get', '-o', narrow, '--capability-file', file];
  assert.equal((await ron(t, words)).code, 0);
  assert.equal((await put(narrow)).code, 77);

  const revoked = await ron(t, ['cap', 'revoke', 'alice', '--dir', dir]);
  assert.match(revoked.text, /^Revoked alice's capabilities issued until now\n$/, revoked.stderr);
  assert.match(await show(), /state +refused: capability was revoked\n/);
  await eventually('storage refuses it', async () => (await put()).code === 77);
  assert.equal((await ron(t, ['put', '-', '--dir', dir], { input: 'mine' })).code, 0, 'the owner is not affected');

  const bridge = await ron(t, ['cap', 'issue', '--scopes', 'interop:put', '--subject', 'x', '--dir', dir, '--json']);
  assert.equal(bridge.code, 0, bridge.stderr);
  const { audience } = inspectToken((JSON.parse(bridge.text) as { token: string }).token);
  assert.equal(audience, 'interop', 'the audience is that of the scopes');
  const mixed = await ron(t, ['cap', 'issue', '--scopes', 'storage:get,interop:put', '--dir', dir]);
  assert.deepEqual([mixed.code, /scopes of one service/.test(mixed.stderr)], [64, true], mixed.stderr);

  const long = await ron(t, ['cap', 'issue', '--scopes', 'kms:audience', '--audience', 'kms', '--dir', dir]);
  assert.equal(long.code, 77);
  assert.match(long.stderr, /kms:audience is not issued here/);
  assert.equal((await ron(t, ['cap', 'issue', '--dir', dir])).code, 64);
  assert.equal((await ron(t, ['cap', 'issue', '--scopes', 'storage:get', '--ttl', 'soon', '--dir', dir])).code, 64);

  assert.equal((await ron(t, ['cap', 'revoke', '--dir', dir])).code, 64);
  const foreign = await ron(t, ['cap', 'revoke', '--id', 'xxx', '--dir', dir]);
  assert.equal(foreign.code, 64);
  assert.match(foreign.stderr, /--id must be an id as `ron cap show` prints it, 22 characters, not "xxx"/);
  assert.equal((await ron(t, ['cap', 'revoke', 'alice', '--all', '--dir', dir])).code, 64);

  const root = join(dir, 'root.cap');
  const before = await readFile(root, 'utf8');
  // The node may renew the file at any time.
  const doctorFinds = (finding: RegExp) =>
    eventually(`doctor finds ${finding}`, async () => {
      await writeFile(root, before, { mode: 0o600 });
      return finding.test((await ron(t, ['doctor', '--dir', dir])).text);
    });
  const own = await ron(t, ['cap', 'show', '--audience', 'storage', '--json', '--dir', dir]);
  const { id } = JSON.parse(own.text) as { id: string };
  assert.equal((await ron(t, ['cap', 'revoke', '--id', id, '--dir', dir])).code, 0);
  await doctorFinds(/^fail {2}the capability for storage is refused: capability was revoked; `ron up` renews it/m);
  const all = await ron(t, ['cap', 'revoke', '--all', '--dir', dir]);
  assert.match(all.text, /^Revoked all capabilities issued until now\n$/, all.stderr);
  await doctorFinds(/^fail {2}the capability for passport is refused: .*capability was revoked; `ron up` renews it/m);
});
