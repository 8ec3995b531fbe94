/** `ron put` and `ron get` against a real node. */
import assert from 'node:assert/strict';
import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { formatAddress } from '@ron/proto';
import { assertSameBytes, bytesOf } from '@ron/testkit';
import { CleanUps, Process, ron, temporaryDir, up, type Ended, type RunInit, type Up } from './support.ts';

const MIB = 1024 * 1024;

suite('put and get', { concurrency: 2 }, () => {
  const cleanUps = new CleanUps();
  let dir: string;
  let node: Up;
  const run = (args: readonly string[], init: RunInit = {}): Promise<Ended> =>
    ron(cleanUps, args, { cwd: dir, env: { RON_DIR: node.dir, XDG_CACHE_HOME: join(dir, 'cache') }, ...init });
  const ok = async (...args: string[]): Promise<string> => {
    const ended = await run(args);
    assert.equal(ended.code, 0, ended.stderr);
    return ended.text;
  };

  before(async () => {
    dir = await temporaryDir(cleanUps);
    node = await up(cleanUps, join(dir, 'node'));
  });
  after(() => cleanUps.run());

  for (const size of [0, 5, 5 * MIB]) {
    test(`${size} bytes make the round trip by file`, async () => {
      const content = bytesOf(size, size + 1);
      await writeFile(join(dir, `in-${size}`), content);
      const address = (await ok('put', `in-${size}`, '--type', 'text/plain')).trim();
      assert.equal(address, formatAddress(blake3(content)));
      assert.equal(await ok('get', address, '-o', `out-${size}`), '');
      assertSameBytes(await readFile(join(dir, `out-${size}`)), content);
      await assert.rejects(stat(join(dir, `out-${size}.part`)), { code: 'ENOENT' });
      const shown = JSON.parse(await ok('stat', address, '--json')) as unknown;
      assert.deepEqual(shown, { address, size, media_type: 'text/plain' });
    });

    test(`${size} bytes make the round trip by pipe`, async () => {
      const content = bytesOf(size, size + 2);
      const put = await run(['put', '-', '--json', '--type', 'text/plain'], { input: content });
      const receipt = JSON.parse(put.text) as { address: string };
      const address = formatAddress(blake3(content));
      assert.deepEqual(receipt, { address, size, durability: { fsynced: true, copies: 1, target: 1 } });
      const get = await run(['get', address]);
      assertSameBytes(get.stdout, content);
      assert.equal(get.code, 0, get.stderr);
    });
  }

  test('a range returns exactly its bytes; one beyond the end is an error', async () => {
    const content = bytesOf(200_000, 3);
    await writeFile(join(dir, 'ranged'), content);
    const address = (await ok('put', 'ranged')).trim();
    assertSameBytes((await run(['get', address, '--range', '65530-65549'])).stdout, content.subarray(65_530, 65_550));
    assertSameBytes((await run(['get', address, '--range', '199999-'])).stdout, content.subarray(199_999));
    await ok('get', address, '--range', '10-19', '-o', 'part-of-it');
    assertSameBytes(await readFile(join(dir, 'part-of-it')), content.subarray(10, 20));
    const beyond = await run(['get', address, '--range', '200000-']);
    assert.equal(beyond.code, 66);
    assert.match(beyond.stderr, /^ron: the object has 200000 bytes, the range begins at 200000\n$/);
    assert.equal((await run(['get', address, '--range', '5-2'])).code, 64);
  });

  test('a missing file and a missing object are reported', async () => {
    const file = await run(['put', 'no-such-file']);
    assert.deepEqual([file.code, file.stderr], [66, 'ron: no-such-file: no such file\n']);
    const directory = await run(['put', '.']);
    assert.equal(directory.code, 64);
    assert.match(directory.stderr, /is a directory/);
    const unknown = formatAddress(new Uint8Array(32));
    const object = await run(['get', unknown, '-o', 'nothing']);
    assert.equal(object.code, 66);
    assert.match(object.stderr, new RegExp(`${unknown} is not stored here \\(corr_id `));
    await assert.rejects(stat(join(dir, 'nothing.part')), { code: 'ENOENT' }, 'no part file is left');
    const json = await run(['stat', unknown, '--json']);
    const { error } = JSON.parse(json.stderr) as { error: { code: string; exit: number; corr_id: string } };
    assert.deepEqual([error.code, error.exit, json.text], ['not_found', 66, '']);
    assert.match(error.corr_id, /^[\w-]{8,}$/);
  });

  test('an invalid address is refused before any request', async () => {
    const upper = await run(['get', `b3:${'A'.repeat(64)}`]);
    assert.equal(upper.code, 64);
    assert.match(upper.stderr, /is not a valid address: .*upper case at character 4/);
  });

  test('an object is pinned and unpinned', async () => {
    const address = (await run(['put', '-'], { input: 'keep me' })).text.trim();
    assert.equal(await ok('pin', address), `pinned ${address}\n`);
    assert.equal(await ok('unpin', address), `unpinned ${address}\n`);
  });

  test('an attenuated capability allows less, and its file is readable by its owner only', async () => {
    await ok('cap', 'attenuate', 'scopes in storage:get', '-o', 'reader.cap');
    assert.equal((await stat(join(dir, 'reader.cap'))).mode & 0o777, 0o600);
    const refused = await run(['put', '-', '--capability-file', 'reader.cap'], { input: 'x' });
    assert.equal(refused.code, 77);
    assert.match(refused.stderr, /^ron: capability lacks scope storage:put/);
    const shown = await ok('cap', 'show', '--capability-file', 'reader.cap');
    assert.match(shown, /^audience {2}storage\nscopes {4}storage:get\n/);
    const whole = await ok('cap', 'show', '--dir', node.dir, '--json');
    assert.ok(
      !whole.includes((await readFile(node.capability_file, 'utf8')).split('"')[3]!),
      'the token itself is not printed',
    );
    const wrong = await run(['cap', 'attenuate', 'scopes in storage:fly']);
    assert.equal(wrong.code, 64);
    assert.match(wrong.stderr, /storage:fly.* is not a scope/);
  });

  test('a closed pipe ends the command without an error message', async () => {
    const content = bytesOf(8 * MIB, 6);
    await writeFile(join(dir, 'long'), content);
    const address = (await ok('put', 'long')).trim();
    const get = new Process(cleanUps, ['get', address], { cwd: dir, env: { RON_DIR: node.dir } });
    get.child.stdout!.once('data', () => get.child.stdout!.destroy());
    const { code, stderr } = await get.ended;
    assert.equal(code, 141);
    assert.doesNotMatch(stderr, /ron:/);
  });
});
