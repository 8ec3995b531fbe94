import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { tempDirFor } from '@ron/testkit';
import { documents, merge, staleDocuments, writeDocuments } from './generate-docs.ts';

const ROOT = join(import.meta.dirname, '..');
const SERVICE = JSON.stringify(join(ROOT, 'packages/service/src/index.ts'));
const CONFIG_PACKAGE = JSON.stringify(join(ROOT, 'packages/config/src/index.ts'));

const CONCURRENCY = (capacity: number): string => `
  import { declareConcurrency } from ${SERVICE};
  export const concurrency = declareConcurrency({
    service: 'storage',
    channels: { work: { kind: 'work', capacity: ${capacity}, lanes: ['get'], from: 'listener', to: 'pool' } },
    tasks: {}, locks: {}, deadlines: {},
  });`;

const CONFIG = `
  import { defineConfig, key } from ${CONFIG_PACKAGE};
  export const schema = defineConfig({ 'server.max_inflight': key.integer({ default: 512, doc: 'Requests at a time.' }) });`;

/** A temporary project, with one service if a declaration is given. */
async function project(t: TestContext, concurrency?: string): Promise<string> {
  const root = tempDirFor(t);
  if (concurrency !== undefined) {
    const source = join(root, 'services/storage/src');
    await mkdir(source, { recursive: true });
    await writeFile(join(source, 'concurrency.ts'), concurrency);
    await writeFile(join(source, 'config.ts'), CONFIG);
  }
  return root;
}

test('the documents of this project are up to date', () => {
  const check = spawnSync(process.execPath, ['tools/generate-docs.ts', '--check'], { cwd: ROOT, encoding: 'utf8' });
  assert.equal(check.stderr, '');
  assert.equal(check.status, 0);
});

test('the check fails for a stale document, and names it and the command that updates it', async (t) => {
  const root = await project(t);
  const run = (...args: string[]): ReturnType<typeof spawnSync> =>
    spawnSync(process.execPath, ['tools/generate-docs.ts', ...args, root], { cwd: ROOT, encoding: 'utf8' });
  assert.equal(run().status, 0);
  assert.equal(run('--check').status, 0);
  await rm(join(root, 'docs/errors.md'));
  const check = run('--check');
  assert.equal(check.status, 1);
  assert.match(String(check.stderr), /^docs\/errors\.md is stale: run `npm run docs`\n$/);
});

test('documents of a project without services say so', async (t) => {
  const root = await project(t);
  await writeDocuments(root);
  assert.match(await readFile(join(root, 'docs/concurrency.md'), 'utf8'), /No service has declarations yet/);
  assert.match(await readFile(join(root, 'docs/errors.md'), 'utf8'), /\| `busy` \| 429 \| yes \|/);
  assert.match(await readFile(join(root, 'docs/errors.md'), 'utf8'), /\| 78 \| the configuration was refused/);
  assert.deepEqual(await staleDocuments(root), []);
});

test('declarations of services are rendered, and a change makes the document stale', async (t) => {
  const root = await project(t, CONCURRENCY(512));
  await writeDocuments(root);
  const text = await readFile(join(root, 'docs/concurrency.md'), 'utf8');
  assert.match(text, /## storage\n\n\*\*Channels\*\*/);
  assert.match(text, /\| `work` \| work \| 512 \| listener -> pool \|/);
  const config = await readFile(join(root, 'docs/config.md'), 'utf8');
  assert.match(config, /\| `server.max_inflight` \| `512` \| .* \| `RON_STORAGE_SERVER_MAX_INFLIGHT` \|/);
  assert.deepEqual(await staleDocuments(root), []);

  await writeFile(join(root, 'docs/concurrency.md'), text.replace('512', '513'));
  assert.deepEqual(await staleDocuments(root), ['docs/concurrency.md']);
  await rm(join(root, 'docs/config.md'));
  assert.deepEqual(await staleDocuments(root), ['docs/concurrency.md', 'docs/config.md']);
});

test('the metrics document lists the registered metrics, common ones once', async () => {
  const { body } = (await documents(ROOT)).find(({ file }) => file === 'docs/metrics.md')!;
  const [ofAll = '', ...own] = body.split('\n## ').map((section) => section.replace(/^## /, ''));
  assert.match(ofAll, /^Every service\n/);
  for (const name of ['process_cpu_seconds_total', 'http_connections', 'capability_keys_asked_total{result}']) {
    assert.ok(ofAll.includes(`| \`${name}\` |`), name);
    assert.ok(!own.some((section) => section.includes(name)), name);
  }
  assert.deepEqual(
    own.map((section) => section.split('\n')[0]),
    ['edge', 'index', 'interop', 'kms', 'mailbox', 'passport', 'storage'],
  );
  assert.match(own[5]!, /`passport_issued_total\{audience\}` \| counter \|/);
});

test('text around the generated part is kept', async (t) => {
  const [document] = await documents(await project(t));
  const first = merge(undefined, document!);
  const edited = `Before.\n\n${first}\nAfter.\n`;
  const again = merge(edited, { ...document!, body: 'NEW' });
  assert.ok(again.startsWith('Before.\n\n') && again.endsWith('\nAfter.\n') && again.includes('\n\nNEW\n\n'));
  assert.equal(merge(again, { ...document!, body: 'NEW' }), again);
  assert.throws(() => merge('no markers', document!), /has no markers/);
});

test('a module without a declaration is an error', async (t) => {
  const root = await project(t, 'export const concurrency = {};');
  await assert.rejects(documents(root), /services\/storage\/src\/concurrency\.ts exports no declaration/);
});
