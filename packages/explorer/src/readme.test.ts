import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempDisposableSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { assertCaught, assertHolds, describeFailure, replay, type Build } from './index.ts';

const README = readFileSync(new URL('../README.md', import.meta.url), 'utf8');

/** The n-th code block in this language. */
function block(language: string, nth = 0): string {
  const blocks = [...README.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, 'gms'))];
  return blocks[nth]?.[1] ?? assert.fail(`the README has no ${language} block ${nth}`);
}

/** Writes the example beside the workspace's packages and gives its path. Removed after the test. */
function example(context: TestContext, source: string): string {
  const directory = mkdtempDisposableSync(join(tmpdir(), 'readme-'));
  context.after(() => directory.remove());
  symlinkSync(fileURLToPath(new URL('../../../node_modules', import.meta.url)), join(directory.path, 'node_modules'));
  const path = join(directory.path, 'example.test.ts');
  writeFileSync(path, source);
  return path;
}

test('the example in the README passes as it stands', async (context) => {
  const path = example(context, block('ts'));
  // The variable tells a test file that it is run by another; without it the example's own runner counts.
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const { stdout } = await promisify(execFile)(process.execPath, ['--test', '--test-reporter=tap', path], { env });
  assert.match(stdout, /^ok 1 - shutdown loses no accepted job$/m);
});

test('the example holds, and the failure in the README is the one that its bug gives', async (context) => {
  const bug = /loop condition of the worker said `(.*?)`/.exec(README)?.[1] ?? assert.fail('the README plants no bug');
  const source = block('ts').replace(/^test\(.*/ms, '');
  const load = async (text: string): Promise<Build> => {
    const module = (await import(pathToFileURL(example(context, text)).href)) as { drains: Build };
    return module.drains;
  };
  await assertHolds(await load(source));
  const broken = await load(source.replace('job !== undefined', bug));
  const { failure } = await assertCaught(broken, {}, 'final');
  assert.equal(block('text').trim(), describeFailure(failure, { name: 'drains' }));
  assert.deepEqual((await replay(broken, failure.seed)).failure?.trace, failure.trace);
});
