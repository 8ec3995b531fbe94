import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const ENTRY = fileURLToPath(new URL('../src/index.ts', import.meta.url));
const IMPORT = /^(?:import|export)\s(?!type\b)[^;]*?from\s+'([^']+)'/gm;

/** All transitive imports of a module, by path; npm packages and `node:` by name. */
async function importsOf(entry: string): Promise<Set<string>> {
  const seen = new Set<string>();
  const pending = [entry];
  for (let path = pending.pop(); path !== undefined; path = pending.pop()) {
    if (seen.has(path)) continue;
    seen.add(path);
    if (!path.startsWith('/')) continue;
    for (const [, name] of (await readFile(path, 'utf8')).matchAll(IMPORT)) {
      const isOurs = name!.startsWith('@ron/');
      if (isOurs) pending.push(fileURLToPath(import.meta.resolve(name!)));
      else pending.push(name!.startsWith('.') ? resolve(dirname(path), name!) : name!);
    }
  }
  return seen;
}

test('no import of the client depends on Node, except for loading the WebAssembly module', async () => {
  const imports = await importsOf(ENTRY);
  const foreign = [...imports].filter((name) => !name.startsWith('/'));
  assert.ok(imports.size > 15, 'the walk found the modules');
  assert.deepEqual(foreign, ['node:fs']);
  assert.match(await readFile(resolve(dirname(ENTRY), '../../simd/src/module.ts'), 'utf8'), /'node:fs'/);
});
