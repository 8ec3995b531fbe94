import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { buildGraph, type ModuleGraph } from '@ron/pages/graph';
import { tempDir } from '@ron/testkit';

const decoder = new TextDecoder();

async function graphOf(sources: Readonly<Record<string, string>>, entry = 'app/main.ts'): Promise<ModuleGraph> {
  await using dir = await tempDir();
  for (const [name, text] of Object.entries({ 'package.json': '{"name":"root"}', ...sources })) {
    await mkdir(dirname(join(dir.path, name)), { recursive: true });
    await writeFile(join(dir.path, name), text);
  }
  return buildGraph({ root: dir.path, entries: { main: pathToFileURL(join(dir.path, entry)).href }, files: {} });
}

const textOf = (graph: ModuleGraph, path: string): string => decoder.decode(graph.files[path]!.body);

test('the graph has all files that the entry reaches, and no other', async () => {
  const graph = await graphOf({
    'app/main.ts': `import { a } from './a.ts';\nexport * from './b.ts';\nimport './c.ts';\nconst d = import('./d.ts');\nconst e = new URL('./e.wasm', import.meta.url);`,
    'app/a.ts': `import type { T } from './types.ts';\nimport {\n  b,\n} from './b.ts';\nexport const a: T = b;`,
    'app/b.ts': 'export const b = 1;',
    'app/c.ts': `// import './unused.ts';\n/** {import('./unused.ts')} */\nconsole.log('c');`,
    'app/d.ts': 'export {};',
    'app/e.wasm': 'wasm',
    'app/types.ts': 'export type T = number;',
    'app/unused.ts': 'export {};',
  });
  assert.deepEqual(Object.keys(graph.files).toSorted(), [
    'app/a.ts',
    'app/b.ts',
    'app/c.ts',
    'app/d.ts',
    'app/e.wasm',
    'app/main.ts',
  ]);
  assert.deepEqual(graph.preload['main']!.toSorted(), ['app/a.ts', 'app/b.ts', 'app/c.ts', 'app/main.ts']);
  assert.equal(graph.files['app/e.wasm']!.media_type, 'application/wasm');
});

test('types are stripped, and every other character keeps its position', async () => {
  const source = 'export const a: number = 1 as number;\nexport const b = a;';
  const graph = await graphOf({ 'app/main.ts': source });
  const text = textOf(graph, 'app/main.ts');
  assert.equal(text.length, source.length);
  assert.equal(text.indexOf('export const b'), source.indexOf('export const b'));
  assert.doesNotMatch(text, /number/);
});

test('packages are resolved by their exports and imports, for browsers', async () => {
  const graph = await graphOf({
    'app/main.ts': `import { x } from 'both';\nimport { y } from '@scope/sub/part';\nexport { x, y };`,
    'node_modules/both/package.json':
      '{"name":"both","exports":{".":{"node":"./node.js","browser":"./browser.js"}},"imports":{"#own":{"browser":"./own.js","default":"./node.js"}}}',
    'node_modules/both/browser.js': `var a=1;import{own}from"#own";export const x=own;`,
    'node_modules/both/own.js': 'export const own = 1;',
    'node_modules/both/node.js': `import 'node:fs';`,
    'node_modules/@scope/sub/package.json': '{"name":"@scope/sub","exports":{"./part":"./lib/part.js"}}',
    'node_modules/@scope/sub/lib/part.js': 'export const y = 2;',
  });
  assert.deepEqual(graph.imports, {
    both: 'node_modules/both/browser.js',
    '@scope/sub/part': 'node_modules/_scope/sub/lib/part.js',
  });
  assert.deepEqual(graph.scopes, { 'node_modules/both/': { '#own': 'node_modules/both/own.js' } });
  assert.ok(!('node_modules/both/node.js' in graph.files));
});

test('a module that needs Node is refused, with the name of its importer', async () => {
  const sources = { 'app/main.ts': `import './a.ts';`, 'app/a.ts': `import { readFileSync } from 'node:fs';` };
  await assert.rejects(graphOf(sources), /app\/a\.ts imports node:fs, which browsers do not have/);
});

test('a file above the root, a missing package and a private part of a package are refused', async () => {
  await assert.rejects(graphOf({ 'app/main.ts': `import '../../../etc/hostname.js';` }));
  await assert.rejects(graphOf({ 'app/main.ts': `import 'missing-package';` }), /is not installed: run npm install/);
  await assert.rejects(
    graphOf({
      'app/main.ts': `import 'closed/inner.js';`,
      'node_modules/closed/package.json': '{"exports":{".":"./index.js"}}',
      'node_modules/closed/inner.js': '',
    }),
    /does not offer to browsers/,
  );
});

test('the hash changes with any content, and only then', async () => {
  const sources = { 'app/main.ts': `import './a.ts';`, 'app/a.ts': 'export const a = 1;' };
  const first = await graphOf(sources);
  assert.equal((await graphOf(sources)).hash, first.hash);
  assert.notEqual((await graphOf({ ...sources, 'app/a.ts': 'export const a = 2;' })).hash, first.hash);
});
