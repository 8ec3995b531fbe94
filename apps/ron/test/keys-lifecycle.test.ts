/** Keys are withdrawn and restored from the command line. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { CleanUps, command, inTemporaryDir, up, type Ended } from './support.ts';

const cleanUps = new CleanUps();
let run: (...args: string[]) => Promise<Ended>;

before(async () => {
  const work = await inTemporaryDir(cleanUps);
  const dir = join(work, 'node');
  await up(cleanUps, dir);
  run = (...args) => command([...args, '--dir', dir]);
  await writeFile(join(work, 'report.txt'), 'all is well\n');
});
after(() => cleanUps.run());

test('a key is disabled, deleted in two steps and restored, and a minimum version is raised and lowered', async () => {
  const kid = (await run('keys', 'create', '--tenant', 'acme', '--alg', 'ed25519')).text.trim();
  const key = kid.slice(0, -3);
  const sign = () => run('sign', 'report.txt', '--key', key);

  assert.match((await run('keys', 'disable', key)).text, /^state +disabled$/m);
  assert.match((await sign()).stderr, /is disabled: enable it first/);
  const none = await run('sign', 'report.txt');
  assert.match(none.stderr, /found 0 signing keys/, 'a disabled key is not chosen');
  assert.match((await run('keys', 'enable', key)).text, /^state +enabled$/m);
  assert.equal((await sign()).code, 0);

  const unconfirmed = await run('keys', 'delete', key);
  assert.equal(unconfirmed.code, 64);
  assert.match(
    unconfirmed.stderr,
    /stops working\. If the waiting .* all its versions are destroyed now .* Confirm with --yes/,
  );
  const begun = await run('keys', 'delete', key, '--yes');
  assert.match(begun.text, /can be deleted from \d{4}-\d\d-\d\dT.*Z: then repeat the command, or cancel with/);
  assert.match((await run('keys', 'show', key)).text, /^state +deleting, final from \d{4}-/m);
  assert.match((await run('keys', 'list')).text, /, #v1, deleting$/m);
  const early = await run('keys', 'delete', key, '--yes');
  assert.equal(early.code, 1);
  assert.match(early.stderr, /can be deleted after the waiting period/);
  assert.match((await sign()).stderr, /is being deleted: restore the whole key first/);
  const partly = await run('keys', 'restore', kid);
  assert.ok(partly.stderr.includes(`${key} is being deleted: restore the whole key first`), partly.stderr);
  assert.equal((await run('keys', 'restore', key)).text, `${key} is kept\n`);
  assert.equal((await sign()).code, 0);

  await run('keys', 'rotate', kid);
  assert.equal((await run('keys', 'min-version', key, '2')).code, 64, 'without confirmation');
  const raised = await run('keys', 'min-version', key, '2', '--yes');
  assert.match(raised.text, /^min version +2$/m);
  assert.match(raised.text, /^for data +1 until \d{4}-/m);
  assert.equal((await run('verify', 'report.txt', '--key', key)).code, 65);
  const lowered = JSON.parse((await run('keys', 'min-version', key, '1', '--yes', '--json')).text) as object;
  assert.partialDeepStrictEqual(lowered, { min_version: 1, min_version_unwrap: 1, state: 'enabled' });
  assert.equal((await run('verify', 'report.txt', '--key', key)).code, 0);
  assert.match((await run('keys', 'delete', `${key}#v1`, '--yes')).text, /#v1 can be deleted from/);
  const fixed = (await run('keys', 'create', '--tenant', 'acme', '--alg', 'ed25519', '--no-rotate')).text.trim();
  assert.match((await run('keys', 'rotate', fixed)).stderr, /rotate: false: create a new key instead/);
  assert.match((await run('keys', 'show', fixed)).text, /versions +#v1, not rotatable/);
  assert.match((await run('keys', 'list', '--prefix', fixed.slice(0, -3))).text, /not rotatable/);
  for (const [args, message] of [
    [['keys', 'explode'], /unknown verb explode: expected create, rotate/],
    [['keys', 'disable'], /expected `keys disable KID`/],
    [['keys', 'disable', kid], /name the key without a version/],
    [['keys', 'min-version', key, 'x', '--yes'], /must be a positive number/],
    [['keys', 'export', key, '--format', 'der'], /--format must be pem, jwk or trust/],
    [['keys', 'list', key], /expected `keys list`/],
  ] as [string[], RegExp][]) {
    const { code, stderr } = await run(...args);
    assert.equal(code, 64, args.join(' '));
    assert.match(stderr, message);
  }
});

test('a capability that is limited to one key signs with this key only', async () => {
  const create = async (): Promise<string> =>
    (await run('keys', 'create', '--tenant', 'acme', '--alg', 'ed25519')).text.trim().slice(0, -3);
  const [mine, other] = [await create(), await create()];
  const scopes = ['--audience', 'kms', '--scopes', 'kms:sign,kms:read,kms:rotate'];
  const issued = await run('cap', 'issue', ...scopes, `name ^= ${mine}`, '-o', 'signer.cap');
  assert.equal(issued.code, 0, issued.stderr);
  const limited = ['--capability-file', 'signer.cap'];
  const sign = (kid: string) => run('sign', 'report.txt', '--key', kid, ...limited);
  assert.equal((await sign(mine)).code, 0);
  assert.equal((await run('keys', 'rotate', mine, ...limited)).code, 0);
  assert.equal((await sign(mine)).code, 0, 'it covers the new version too');
  assert.match((await run('keys', 'list', '--prefix', mine, ...limited)).text, /#v2 .*#v1 #v2$/m);
  for (const refused of [
    await sign(other),
    await run('keys', 'rotate', other, ...limited),
    await run('keys', 'list', ...limited),
    await run('keys', 'disable', mine, ...limited),
  ])
    assert.equal(refused.code, 77, refused.stderr);
});
