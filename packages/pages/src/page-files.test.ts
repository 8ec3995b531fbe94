import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { isRonError } from '@ron/kernel';
import { PageFiles, escapeHtml } from '@ron/pages';
import { eventually, tempDir } from '@ron/testkit';

const signal = new AbortController().signal;

async function makeFiles(wait_ms?: number): Promise<{ files: PageFiles; dir: string } & AsyncDisposable> {
  const temp = await tempDir();
  const dir = temp.path;
  await mkdir(join(dir, 'node_modules/dep'), { recursive: true });
  await writeFile(join(dir, 'package.json'), '{}');
  await writeFile(join(dir, 'main.ts'), `import { x } from 'dep';\nexport const y: number = x;\n`);
  await writeFile(join(dir, 'secret.ts'), 'export const secret = 1;');
  await writeFile(join(dir, 'node_modules/dep/package.json'), '{"exports":"./index.js"}');
  await writeFile(join(dir, 'node_modules/dep/index.js'), 'export const x = 1;');
  const root = pathToFileURL(`${dir}/`);
  const files = new PageFiles({
    prefix: '/page/files/',
    href: './files/',
    root,
    entries: { main: new URL('main.ts', root) },
    files: {},
    ...(wait_ms !== undefined && { wait_ms }),
  });
  return {
    files,
    dir,
    async [Symbol.asyncDispose]() {
      await files.close();
      await temp[Symbol.asyncDispose]();
    },
  };
}

test('the head has the import map, whose hash the policy allows, and preloads the whole graph', async () => {
  await using page = await makeFiles();
  const built = await page.files.built(signal);
  const head = built.head('main');
  const map = /<script type="importmap">(.*?)<\/script>/.exec(head)![1]!;
  const hash = createHash('sha256').update(map).digest('base64');
  assert.equal(built.script_src, `'self' 'wasm-unsafe-eval' 'sha256-${hash}'`);
  const { imports } = JSON.parse(map) as { imports: Record<string, string> };
  assert.match(imports['dep']!, /^\.\/files\/[\w-]{22}\/node_modules\/dep\/index\.js$/);
  assert.equal(head.match(/rel="modulepreload"/g)?.length, 2);
  assert.match(head, /<script type="module" src="\.\/files\/[\w-]{22}\/main\.ts"><\/script>/);
});

test('exactly the files of the graph are served, as immutable', async () => {
  await using page = await makeFiles();
  const built = await page.files.built(signal);
  const main = /src="\.(\/files\/[^"]+)"/.exec(built.head('main'))![1]!;
  const answer = built.answer(`/page${main}`);
  assert.ok(answer.kind === 'bytes');
  assert.match(String(answer.source.headers?.['Cache-Control']), /immutable/);
  for (const path of [
    main.replace('main.ts', 'secret.ts'),
    main.replace('main.ts', '../main.ts'),
    main.replace('main.ts', 'package.json'),
    main.replace(/files\/[^/]+/, 'files/AAAAAAAAAAAAAAAAAAAAAA'),
    '/files/',
    '/files/__proto__',
  ])
    assert.throws(
      () => built.answer(`/page${path}`),
      (error) => isRonError(error, 'not_found'),
      path,
    );
});

test('a failed build is tried again at the next use', async () => {
  await using page = await makeFiles();
  await writeFile(join(page.dir, 'main.ts'), `import 'node:fs';`);
  await assert.rejects(page.files.built(signal), /imports node:fs/);
  await writeFile(join(page.dir, 'main.ts'), 'export {};');
  await page.files.built(signal);
});

test('an aborted caller leaves, and the build goes on for the others', async () => {
  await using page = await makeFiles();
  const leaving = new AbortController();
  const left = page.files.built(leaving.signal);
  const stays = page.files.built(signal);
  leaving.abort(new Error('left'));
  await assert.rejects(left, /left/);
  assert.ok((await stays).script_src.includes('sha256-'));
});

test('a caller of a slow build is refused with a time to try again, and later finds it built', async () => {
  await using made = await makeFiles(0);
  await assert.rejects(
    made.files.built(signal),
    (error) => isRonError(error, 'not_ready') && error.retry_after_ms === 1000,
  );
  await eventually('built', async () => (await made.files.built(signal).catch(() => undefined)) !== undefined);
});

test('closing ends a build', async () => {
  await using page = await makeFiles();
  const building = page.files.built(signal);
  await Promise.all([assert.rejects(building, (error) => isRonError(error, 'draining')), page.files.close()]);
});

test('text cannot leave its attribute or element', () => {
  assert.equal(escapeHtml(`<a href="x" id='y'>&`), '&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt;&amp;');
});
