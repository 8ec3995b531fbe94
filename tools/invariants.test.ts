import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { renderInvariants, traceInvariants } from './invariants.ts';

const ROOT = join(import.meta.dirname, '..');
/** Built at run time, because a tag in this file would count as a proof. */
const tag = (rule: string): string => `[${rule}]`;

async function project(t: TestContext, files: Readonly<Record<string, string>>): Promise<string> {
  const root = await mkdtemp(join(tmpdir(), 'ron-invariants-'));
  t.after(() => rm(root, { recursive: true }));
  for (const [file, text] of Object.entries(files)) {
    await mkdir(dirname(join(root, file)), { recursive: true });
    await writeFile(join(root, file), text);
  }
  return root;
}

const DECLARED = {
  'services/storage/src/invariants.ts': `export const invariants = { 'I-1': 'One.', 'I-2': 'Two.' };`,
};
const TRACED = {
  ...DECLARED,
  'packages/kernel/src/mpsc.ts': `// ${tag('storage I-1')} ${tag('storage I-2')} ${tag('storage I-1')}`,
  'packages/kernel/src/mpsc.test.ts': `test('never waits ${tag('storage I-1')}', () => {});`,
  'packages/kernel/src/mpsc.model.ts': `/** ${tag('storage I-2')} */`,
  'services/storage/test/limits.ts': `// ${tag('storage I-2')}`,
};

test('every rule of this project is enforced and proven, and every tag names a rule', async () => {
  const { rules, problems } = await traceInvariants(ROOT);
  assert.deepEqual(problems, []);
  const { storage, kms } = Object.groupBy(rules, ({ service }) => service);
  assert.deepEqual([storage?.length, kms?.length], [11, 11]);
});

test('a tag in a test or a model is a proof, any other an enforcement', async (t) => {
  const { rules, problems } = await traceInvariants(await project(t, TRACED));
  assert.deepEqual(problems, []);
  assert.deepEqual(
    rules.map(({ id, enforced, proven }) => [id, enforced, proven]),
    [
      ['I-1', ['packages/kernel/src/mpsc.ts'], ['packages/kernel/src/mpsc.test.ts']],
      [
        'I-2',
        ['packages/kernel/src/mpsc.ts'],
        ['packages/kernel/src/mpsc.model.ts', 'services/storage/test/limits.ts'],
      ],
    ],
  );
});

test('the table links each file', async (t) => {
  const text = renderInvariants(await traceInvariants(await project(t, TRACED)));
  assert.match(text, /^## storage\n\n\| Rule \| Text \| Enforced in \| Proven by \|\n/);
  const row =
    '| I-2 | Two. | [kernel/mpsc.ts](../packages/kernel/src/mpsc.ts) | ' +
    '[kernel/mpsc.model.ts](../packages/kernel/src/mpsc.model.ts)<br>[storage/test/limits.ts](../services/storage/test/limits.ts) |';
  assert.equal(text.split('\n').at(-1), row);
});

test('a rule without enforcement or proof is a problem', async (t) => {
  const root = await project(t, {
    ...DECLARED,
    'packages/a/src/a.ts': `// ${tag('storage I-1')}`,
    'packages/a/src/a.test.ts': `// ${tag('storage I-2')}`,
  });
  const { problems } = await traceInvariants(root);
  assert.equal(problems.length, 2);
  assert.ok(problems[0]!.startsWith(`${tag('storage I-1')} has no proof:`));
  assert.ok(problems[1]!.startsWith(`${tag('storage I-2')} has no enforcement:`));
  assert.match(problems.join('\n'), /"One\."\n.*"Two\."$/);
});

test('a tag that names no declared rule is a problem, with its place', async (t) => {
  const wrong = ['storage I-3', 'edge I-1', 'storage I1', 'storage I-1, I-2'];
  const text = wrong.map((rule) => `// ${tag(rule)}\n`).join('');
  const { problems } = await traceInvariants(await project(t, { ...TRACED, 'packages/b/src/b.ts': text }));
  assert.deepEqual(
    problems,
    wrong.map((rule, at) => `packages/b/src/b.ts:${at + 1}: ${tag(rule)} names no declared rule`),
  );
});

test('a declaration that is not a table of rules is refused', async (t) => {
  for (const text of [
    'export const rules = {};',
    'export const invariants = {};',
    `export const invariants = { a: 'b' };`,
  ]) {
    const root = await project(t, { 'services/storage/src/invariants.ts': text });
    await assert.rejects(traceInvariants(root), /services\/storage\/src\/invariants\.ts exports no invariants/);
  }
});

test('the check of the documents fails for a rule without proof, even if no document is stale', async (t) => {
  const root = await project(t, {
    ...DECLARED,
    'packages/a/src/a.ts': `// ${tag('storage I-1')} ${tag('storage I-2')}`,
  });
  const run = (...args: string[]): ReturnType<typeof spawnSync> =>
    spawnSync(process.execPath, ['tools/generate-docs.ts', ...args, root], { cwd: ROOT, encoding: 'utf8' });
  assert.equal(run().status, 1);
  const check = run('--check');
  assert.equal(check.status, 1);
  const [first = '', second = '', ...rest] = String(check.stderr).split('\n');
  assert.ok(first.startsWith(`${tag('storage I-1')} has no proof:`), first);
  assert.ok(second.startsWith(`${tag('storage I-2')} has no proof:`), second);
  assert.deepEqual(rest, [''], 'no document is stale');
});
