import assert from 'node:assert/strict';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { NEVER } from '@ron/kernel';
import { tempDirFor } from '@ron/testkit';
import { compileAhead } from './compile-ahead.ts';

/** A program with this source, and an empty cache. */
function setUp(t: TestContext, source: string): { main: string; env: NodeJS.ProcessEnv; markers: () => string[] } {
  const dir = tempDirFor(t);
  const cache = join(dir, 'cache');
  const main = join(dir, 'main.ts');
  writeFileSync(main, source);
  const markers = (): string[] =>
    readdirSync(dir, { recursive: true })
      .map(String)
      .filter((name) => name.includes('services-'));
  return { main, env: { ...process.env, NODE_COMPILE_CACHE: cache }, markers };
}

const LEAVES_TRACE = (path: string): string =>
  `import { appendFileSync } from 'node:fs';\nconst path: string = ${JSON.stringify(path)};\nappendFileSync(path, 'x');\n`;

test('services are loaded once for a cache, and again when their list changes', async (t) => {
  const trace = join(tempDirFor(t), 'trace');
  const { main, env, markers } = setUp(t, LEAVES_TRACE(trace));
  await compileAhead([main], env, NEVER);
  assert.equal(markers().length, 1);
  await compileAhead([main], env, NEVER);
  assert.equal(readFileSync(trace, 'utf8'), 'x');
  await compileAhead([main, main], env, NEVER);
  assert.equal(markers().length, 2);
});

test('a service that cannot be loaded is not reported and not marked as compiled', async (t) => {
  const { main, env, markers } = setUp(t, "throw new Error('broken');\n");
  await compileAhead([main], env, NEVER);
  assert.deepEqual(markers(), []);
});

test('without a cache nothing is loaded, and an abort ends the wait', async (t) => {
  const { main, env, markers } = setUp(t, 'setInterval(() => undefined, 1000);\nawait new Promise(() => undefined);\n');
  await compileAhead([main], { ...env, NODE_COMPILE_CACHE: undefined }, NEVER);
  await assert.rejects(compileAhead([main], env, AbortSignal.timeout(200)));
  assert.deepEqual(markers(), []);
});
