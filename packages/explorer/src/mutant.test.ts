import assert from 'node:assert/strict';
import { mkdtempDisposableSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { pathToFileURL } from 'node:url';
import { sched } from '@ron/kernel/sched';
import * as seed from './seed.ts';
import { explore, mutant } from './index.ts';

/** A directory with these modules, removed after the test; their URLs. */
function modules(context: TestContext, sources: Record<string, string>): Record<string, string> {
  const directory = mkdtempDisposableSync(join(tmpdir(), 'mutant-'));
  context.after(() => directory.remove());
  return Object.fromEntries(
    Object.entries(sources).map(([name, source]) => {
      const path = join(directory.path, name);
      writeFileSync(path, source);
      return [name, pathToFileURL(path).href];
    }),
  );
}

test('imports the real source with one change, and leaves the original alone', async () => {
  const url = import.meta.resolve('./seed.ts');
  const changed = await mutant<typeof seed>(url, "trace.join('\\n')", "'always the same'");
  assert.equal(changed.fingerprint(['a']), changed.fingerprint(['b']));
  assert.notEqual(seed.fingerprint(['a']), seed.fingerprint(['b']));
  assert.deepEqual(changed.decodeSeed('final-3-abc-1.2'), seed.decodeSeed('final-3-abc-1.2'));
});

test('two mutants of one file are two modules', async () => {
  const url = import.meta.resolve('./seed.ts');
  const [first, second] = await Promise.all(
    ['1', '2'].map((value) => mutant<typeof seed>(url, '(hash >>> 0).toString(36)', `'${value}'`)),
  );
  assert.deepEqual([first?.fingerprint([]), second?.fingerprint([])], ['1', '2']);
});

test('the imports of a mutant are shared with all other code', async () => {
  const url = import.meta.resolve('@ron/kernel/sched').replace('sched.ts', 'channels/mpsc.ts');
  const { Mpsc } = await mutant<{
    Mpsc: new (name: string, capacity: number) => { recv(signal: AbortSignal): Promise<unknown> };
  }>(url, 'this.#closed = true;', '');
  // Its wait is seen by the explorer: so it uses the same `sched`.
  const result = await explore((world) => {
    world.task('receiver', async () => void (await new Mpsc('jobs', 1).recv(new AbortController().signal)));
    return {};
  });
  assert.match(String(result.failure?.error), /blocked: receiver at jobs\.recv/);
  assert.notEqual(sched, undefined);
});

test('the text must occur exactly once', async () => {
  const url = import.meta.resolve('./seed.ts');
  await assert.rejects(
    mutant(url, 'there is no such text', ''),
    /'there is no such text' occurs 0 times in .*seed\.ts/,
  );
  await assert.rejects(mutant(url, 'export function', ''), /occurs 3 times/);
});

test('can be used through the modules that import it, and only through those', async (context) => {
  const urls = modules(context, {
    'leaf.ts': 'export const value: number = 1;',
    'middle.ts': "export { value } from './leaf.ts';",
    'other.ts': "export { value as other } from './leaf.ts';",
    'top.ts': "export { value } from './middle.ts'; export { other } from './other.ts';",
  });
  const entry = urls['top.ts'] as string;
  const through = [urls['middle.ts'] as string];
  const top = await mutant<object>(urls['leaf.ts'] as string, '= 1', '= 2', { entry, through });
  assert.deepEqual({ ...top }, { value: 2, other: 1 });
  assert.deepEqual({ ...((await import(entry)) as object) }, { value: 1, other: 1 });
});

test('an entry that never imports the changed module is refused', async (context) => {
  const urls = modules(context, { 'leaf.ts': 'export const value = 1;', 'alone.ts': 'export const alone = 1;' });
  const entry = urls['alone.ts'] as string;
  await assert.rejects(
    mutant(urls['leaf.ts'] as string, '= 1', '= 2', { entry }),
    /alone\.ts does not import .*leaf\.ts/,
  );
});
