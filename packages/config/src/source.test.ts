import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { key } from './keys.ts';
import { ConfigSource, FILE_BYTES_MAX } from './source.ts';
import { tempDirFor } from '@ron/testkit';
import { ConfigError, defineConfig } from './config.ts';

const schema = defineConfig({
  'server.max_inflight': key.integer({ default: 512, min: 1, doc: 'Requests at a time.', reloadable: true }),
  hosts: key.list({ default: [], doc: 'Allowed hosts.', reloadable: true }),
  data_dir: key.text({ default: 'data', doc: 'Where data lies.' }),
  token: key.text({ default: 'old-secret', doc: 'A secret.', secret: true }),
});

async function configFile(t: TestContext, text: string): Promise<string> {
  const dir = tempDirFor(t);
  const path = join(dir, 'ron.toml');
  await writeFile(path, text);
  return path;
}

test('a good reload swaps the whole config and tells who watches; the old one stays as it was', async (t) => {
  const path = await configFile(t, 'server.max_inflight = 1\nhosts = ["a"]');
  await using source = await ConfigSource.open({ schema, file: { path } });
  const receiver = source.watch.subscribe();
  const old = source.value;
  await writeFile(path, 'server.max_inflight = 2\nhosts = ["a", "b"]');
  assert.deepEqual(await source.reload(), { ok: true, changed: ['server.max_inflight', 'hosts'] });
  assert.equal((await receiver.changed(t.signal)).server.max_inflight, 2);
  assert.equal(old.server.max_inflight, 1);
});

test('a reload that changes nothing wakes no follower', async (t) => {
  const path = await configFile(t, 'hosts = ["a"]');
  await using source = await ConfigSource.open({ schema, file: { path } });
  const old = source.value;
  assert.deepEqual(await source.reload(), { ok: true, changed: [] });
  assert.equal(source.value, old);
});

test('a bad reload keeps the old config and lists every problem', async (t) => {
  const path = await configFile(t, 'server.max_inflight = 1');
  await using source = await ConfigSource.open({ schema, file: { path } });
  const old = source.value;
  await writeFile(path, 'server.max_inflight = 0\nservr = 1');
  const result = await source.reload();
  assert.deepEqual(result.ok ? [] : result.problems.map((problem) => problem.key).toSorted(), [
    'server.max_inflight',
    'servr',
  ]);
  assert.match(
    source.problem!,
    /^the last reload was refused: (?:server\.max_inflight, servr|servr, server\.max_inflight)$/,
  );
  await writeFile(path, 'server.max_inflight = [');
  assert.equal((await source.reload()).ok, false);
  await rm(path);
  const gone = await source.reload();
  assert.equal(gone.ok ? '' : gone.problems[0]!.found, 'ENOENT');
  assert.equal(source.value, old);
  await writeFile(path, 'server.max_inflight = 1');
  assert.ok((await source.reload()).ok);
  assert.equal(source.problem, undefined);
});

test('a change to a key that needs a restart is refused whole, and says so without showing a secret', async (t) => {
  const path = await configFile(t, '');
  await using source = await ConfigSource.open({ schema, file: { path } });
  await writeFile(path, 'server.max_inflight = 7\ndata_dir = "other"\ntoken = "new-secret"');
  const result = await source.reload();
  assert.ok(!result.ok);
  assert.deepEqual(
    result.problems.map((problem) => problem.key),
    ['data_dir', 'token'],
  );
  assert.match(result.problems[0]!.expected, /no change from "data" without a restart/);
  assert.doesNotMatch(JSON.stringify(result.problems), /old-secret|new-secret/);
  assert.equal(source.value.server.max_inflight, 512, 'not even the reloadable part is taken');
});

test('reloads run one after another: the second does not read before the first has ended', async (t) => {
  // A pipe gives each reader its own data, so a reader that came too early would be detected.
  const path = await configFile(t, 'server.max_inflight = 1');
  await using source = await ConfigSource.open({ schema, file: { path } });
  await rm(path);
  assert.equal(spawnSync('mkfifo', [path]).status, 0);
  const first = source.reload();
  const second = source.reload();
  await writeFile(path, 'server.max_inflight = 2');
  assert.deepEqual(await first, { ok: true, changed: ['server.max_inflight'] });
  assert.equal(source.value.server.max_inflight, 2);
  await writeFile(path, 'server.max_inflight = 3');
  assert.deepEqual(await second, { ok: true, changed: ['server.max_inflight'] });
  assert.equal(source.value.server.max_inflight, 3);
});

test('a file that is missing, too long or not UTF-8 is refused at the start', async (t) => {
  const path = await configFile(t, '');
  await assert.rejects(ConfigSource.open({ schema, file: { path: `${path}.none` } }), /ENOENT/);
  await writeFile(path, `#${'x'.repeat(FILE_BYTES_MAX)}`);
  await assert.rejects(ConfigSource.open({ schema, file: { path } }), ConfigError);
  await writeFile(path, `#${'x'.repeat(FILE_BYTES_MAX - 1)}`);
  (await ConfigSource.open({ schema, file: { path } })).close();
  await writeFile(path, new Uint8Array([0x23, 0xff, 0xfe]));
  await assert.rejects(ConfigSource.open({ schema, file: { path } }), /not UTF-8/);
});

test('a reload that ends after the close changes nothing', async (t) => {
  const path = await configFile(t, 'server.max_inflight = 1');
  const source = await ConfigSource.open({ schema, file: { path } });
  await writeFile(path, 'server.max_inflight = 2');
  const reload = source.reload();
  source.close();
  assert.equal((await reload).ok, false);
  assert.equal(source.value.server.max_inflight, 1);
});
