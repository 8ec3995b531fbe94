/** Volume administration from the command line, against a real node with three directories. */
import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { bytesOf, eventually, removeDir } from '@ron/testkit';
import { CleanUps, ron, temporaryDir, up, type Ended, type Up } from './support.ts';

suite('volumes, repair, scrub', () => {
  const cleanUps = new CleanUps();
  let dir: string;
  let node: Up;
  const run = (...args: string[]): Promise<Ended> =>
    ron(cleanUps, args, { cwd: dir, env: { RON_DIR: node.dir, XDG_CACHE_HOME: join(dir, 'cache') } });
  const ok = async (...args: string[]): Promise<string> => {
    const ended = await run(...args);
    assert.equal(ended.code, 0, ended.stderr);
    return ended.text;
  };
  const at = (name: string): string => join(dir, name);

  before(async () => {
    dir = await temporaryDir(cleanUps);
    const dirs = ['a', 'b', 'c'].map((name) => at(name)).join(',');
    const sets = [`storage.data_dirs=${dirs}`, 'storage.durability.replication_factor=2'];
    node = await up(cleanUps, at('node'), ['--only', 'storage', ...sets.flatMap((set) => ['--set', set])]);
    for (let index = 0; index < 4; index++) {
      await writeFile(at(`in-${index}`), bytesOf(index % 2 === 0 ? 300_000 : 3000, index + 1));
      await ok('put', `in-${index}`);
    }
  });
  after(() => cleanUps.run());

  test('volumes are listed as a table and as JSON', async () => {
    const lines = (await ok('volumes')).trimEnd().split('\n');
    assert.match(lines[0]!, /^volume +life +state +domain +used$/);
    assert.deepEqual(
      lines.slice(1).map((line) => line.split(/ {2,}/).slice(0, 4)),
      ['a', 'b', 'c'].map((name) => [at(name), 'active', 'ok', '-']),
    );
    const { volumes } = JSON.parse(await ok('volumes', '--json'));
    assert.equal(volumes.length, 3);
  });

  test('a scrub reads all data and reports each volume', async () => {
    const { volumes } = JSON.parse(await ok('scrub', '--json'));
    assert.equal(volumes.length, 3);
    for (const { bytes, bad, pass } of volumes) {
      assert.ok(bytes > 0);
      assert.deepEqual([bad, pass], [0, 1]);
    }
    assert.match(await ok('scrub'), / records, .*, 0 damaged/);
  });

  test('a lost directory is reported, repaired, replaced and refilled', async () => {
    assert.match(await ok('repair', 'start'), /^copies +2 of 2\nmissing +0 /);
    await removeDir(at('b'));
    await eventually('it is lost', async () => / lost /.test(await ok('volumes')));
    assert.match(
      await ok('doctor'),
      new RegExp(`^warn {2}storage at .* degraded: durability \\(.*${at('b')}.*\\)$`, 'm'),
    );
    const status = JSON.parse(await ok('repair', 'start', '--json'));
    assert.deepEqual([status.deficit, status.observed, status.problems.length], [0, 2, 1]);
    assert.match(await ok('repair', 'status', '--follow'), new RegExp(`problem +${at('b')} is gone`));
    await mkdir(at('b'));
    assert.match(await ok('volumes', 'restore', at('b')), new RegExp(`${at('b')} +active`));
    await ok('repair', 'start');
  });

  test('a drain can be cancelled', async () => {
    assert.match(await ok('volumes', 'drain', at('a')), new RegExp(`${at('a')} +drain`));
    const second = await run('volumes', 'drain', at('c'));
    assert.match(second.stderr, /2 copies need 2 volumes, 1 would be left: add one first/);
    assert.match(await ok('volumes', 'undrain', at('a')), new RegExp(`${at('a')} +active`));
  });

  test('an impossible request is refused with the reason', async () => {
    const early = await run('volumes', 'remove', at('a'));
    assert.equal(early.code, 1);
    assert.match(early.stderr, /^ron: [^\n]*drain it first[^\n]*\n$/, 'a message without a stack trace');
    assert.match((await run('volumes', 'remove')).stderr, /expected `volumes` alone, or one of/);
    assert.match((await run('volumes', 'drain', '/nowhere')).stderr, /there is no volume/);
    assert.match((await run('repair', 'stop')).stderr, /expected `repair status` or `repair start`/);
  });
});
