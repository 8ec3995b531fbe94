/** Runs oxlint with each rule over small files in a folder with the layout of this project. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const plugin = fileURLToPath(new URL('./index.js', import.meta.url));
let folder: string;

before(() => {
  folder = mkdtempSync(join(tmpdir(), 'ron-lint-'));
});
after(() => rmSync(folder, { recursive: true }));

/** The messages that oxlint reports for `source` at `path`. */
function reported(rule: string, path: string, source: string): string[] {
  const file = join(folder, path);
  const config = join(folder, 'oxlintrc.json');
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, source);
  writeFileSync(config, JSON.stringify({ jsPlugins: [plugin], categories: {}, rules: { [rule]: 'error' } }));
  const child = spawnSync('oxlint', ['--config', config, '--format', 'json', file], { encoding: 'utf8', cwd: folder });
  const report = JSON.parse(child.stdout) as { diagnostics: { message: string; code: string }[] };
  return report.diagnostics.filter((each) => each.code.includes('ron')).map((each) => each.message);
}

interface Case {
  rule: string;
  refused: Record<string, string>;
  allowed: Record<string, string>;
  path?: string;
}

const CASES: Case[] = [
  {
    // [storage I-1] [kms I-1] [index I-1] [edge I-1] [interop I-1]
    rule: 'ron/no-await-in-guard',
    refused: {
      'an async callback': 'cell.withSync(async (s) => s.n);',
      'an await in the callback': 'await cell.withSync(async function (s) { await s.n; });',
      'a for-await in the callback': 'cell.withSync(async (s) => { for await (const x of s) use(x); });',
      'a generator callback': 'cell.withSync(function* (s) { yield s; });',
      'a computed name': "cell['withSync'](async (s) => s.n);",
      'a callback behind a type assertion': 'cell.withSync((async (s) => { await s.n; }) as unknown as () => void);',
      'a guard held in a private field': 'class A { #c; f() { this.#c.withSync(async (s) => s.n); } }',
    },
    allowed: {
      'a synchronous callback': 'const n = cell.withSync((s) => s.n); await f(n);',
      'an async function that is only created inside':
        'cell.withSync((s) => { s.later = async () => { await f(); }; });',
      'an await around the guard': 'await f(cell.withSync((s) => s.n));',
    },
  },
  {
    rule: 'ron/no-raw-timers',
    refused: {
      setTimeout: 'setTimeout(f, 1);',
      'globalThis.setInterval': 'globalThis.setInterval(f, 1);',
      'Date.now': 'const t = Date.now();',
      'new Date()': 'const t = new Date();',
      'performance.now': 'const t = performance.now();',
      'Math.random': 'const r = Math.random();',
      'AbortSignal.timeout': 'const s = AbortSignal.timeout(5);',
      'timers/promises': "import { setTimeout as wait } from 'node:timers/promises'; wait(1);",
      'crypto randomness': "import { randomBytes } from 'node:crypto'; randomBytes(1);",
      'process.hrtime.bigint': 'const t = process.hrtime.bigint();',
    },
    allowed: {
      'the seam': "import { sched } from '@ron/kernel'; sched.timer(1, f, 'x');",
      'a date from a number': 'const d = new Date(0);',
      'other crypto': "import { createHmac } from 'node:crypto'; createHmac('sha256', k);",
    },
  },
  {
    // [storage I-7] [kms I-7] [index I-7] [edge I-7] [interop I-7] [storage I-11] [kms I-11] [edge I-11] [interop I-11]
    rule: 'ron/no-blocking-calls',
    refused: {
      'a synchronous file call': "import { readFileSync } from 'node:fs'; readFileSync('a');",
      'the same under another name': "import { statSync as stat } from 'fs'; stat('a');",
      'the same of the whole module': "import fs from 'node:fs'; fs.rmSync('a');",
      'a synchronous process': "import { execSync } from 'node:child_process'; execSync('ls');",
      'a slow hash': "import { scryptSync } from 'node:crypto'; scryptSync(a, b, 32);",
      SQLite: "import { DatabaseSync } from 'node:sqlite'; new DatabaseSync('a');",
      'a native library': "import koffi from 'koffi'; koffi.load('a');",
      'a native library that is required': "createRequire(import.meta.url)('koffi').load('a');",
      'a wait on shared memory': 'Atomics.wait(words, 0, 0);',
      'a finalizer': 'new FinalizationRegistry(f);',
    },
    allowed: {
      'a file call with a promise': "import { readFile } from 'node:fs/promises'; await readFile('a');",
      'a file call with a callback': "import fs from 'node:fs'; fs.stat('a', f);",
      'a short computation': "import { hkdfSync } from 'node:crypto'; hkdfSync('sha256', a, b, c, 32);",
      'a type': "import type { DatabaseSync } from 'node:sqlite'; export type A = DatabaseSync;",
      'a method that happens to end alike': 'queue.flushSync();',
      'a call with a reason':
        "// oxlint-disable-next-line ron/no-blocking-calls -- at import\nimport { readFileSync } from 'node:fs';",
    },
  },
  {
    // [storage I-3] [kms I-3] [index I-3] [edge I-3] [interop I-3]
    rule: 'ron/no-unbounded-queue',
    refused: {
      'a forgotten capacity': "new Mpsc('work');",
      Infinity: "new Mpsc('work', Infinity);",
      'the largest integer': "new Broadcast('events', Number.MAX_SAFE_INTEGER);",
      'options without capacity': "new WorkQueue('work', { lanes: ['get'] });",
      'an infinite capacity in options': "new WorkQueue('work', { capacity: Infinity });",
      'events.on': "import { on } from 'node:events'; on(x, 'data');",
    },
    allowed: {
      'a number': "new Mpsc('work', 512);",
      'a declared number': "new WorkQueue('work', { capacity: limits.work });",
      'spread options': "new WorkQueue('work', { ...init });",
    },
  },
  {
    rule: 'ron/boundaries',
    path: 'packages/kernel/src',
    refused: {
      'kernel -> ingress': "import { x } from '@ron/ingress'; x();",
      'an unknown workspace': "import { x } from '@ron/nonsense'; x();",
      'reaching into a neighbour': "import { x } from '../../proto/src/address.ts'; x();",
      'a re-export': "export * from '@ron/auth';",
      'a dynamic import': "const x = await import('@ron/auth');",
    },
    allowed: {
      'its own file': "import { x } from './sched.ts'; x();",
      'an npm package': "import { pino } from 'pino'; pino();",
    },
  },
  {
    rule: 'ron/boundaries',
    path: 'packages/ingress/src',
    refused: {
      'the explorer outside of a test': "import { explore } from '@ron/explorer'; explore();",
      'a package beside it': "import { x } from '@ron/auth'; x();",
    },
    allowed: { 'a lower package': "import { x } from '@ron/kernel'; x();" },
  },
  {
    rule: 'ron/boundaries',
    path: 'packages/cas/src',
    refused: { 'a package above it': "import { x } from '@ron/durability'; x();" },
    allowed: { 'packages that the table lists': "import { x } from '@ron/log'; import { y } from '@ron/simd'; x(y);" },
  },
  {
    rule: 'ron/boundaries',
    path: 'services/storage/src/objects',
    refused: {
      'domain code that imports a handler': "import { x } from '../routes/objects.ts'; x();",
      'domain code that imports the table': "export { x } from '../routes.ts';",
      'domain code that imports routes by a dynamic import': "const x = await import('../routes.ts');",
    },
    allowed: { 'another part of the domain': "import { x } from '../volumes/routes-of-data.ts'; x();" },
  },
  {
    rule: 'ron/boundaries',
    path: 'services/kms/src/routes',
    refused: {},
    allowed: {
      'one handler file in another': "import { x } from './schemas.ts'; import { y } from '../routes.ts'; x(y);",
    },
  },
  {
    rule: 'ron/boundaries',
    path: 'services/storage/src',
    refused: { 'a neighbouring service by path': "import { x } from '../../index/src/service.ts'; x();" },
    allowed: { 'a package': "import { x } from '@ron/auth'; x();" },
  },
];

for (const { rule, refused, allowed, path = 'packages/ingress/src' } of CASES) {
  suite(`${rule} in ${path}`, () => {
    for (const [name, source] of Object.entries(refused)) {
      test(`refuses ${name}`, () => assert.notDeepEqual(reported(rule, join(path, 'sample.ts'), source), []));
    }
    for (const [name, source] of Object.entries(allowed)) {
      test(`allows ${name}`, () => assert.deepEqual(reported(rule, join(path, 'sample.ts'), source), []));
    }
  });
}

test('a test may import the testkit and the testkit any package, a shipped file may not import the testkit', () => {
  const source = "import { eventually } from '@ron/testkit'; eventually();";
  assert.deepEqual(reported('ron/boundaries', 'packages/kernel/src/mpsc.test.ts', source), []);
  assert.deepEqual(reported('ron/boundaries', 'packages/kernel/src/testing/clock.ts', source), []);
  assert.deepEqual(reported('ron/boundaries', 'services/storage/test/support.ts', source), []);
  for (const path of ['packages/kernel/src/mpsc.ts', 'services/storage/src/service.ts', 'apps/ron/src/main.ts'])
    assert.equal(reported('ron/boundaries', path, source).length, 1, path);
  const down = "import { mint } from '@ron/auth'; mint();";
  assert.deepEqual(reported('ron/boundaries', 'packages/testkit/src/service/capabilities.ts', down), []);
});

test('the declaration of a service imports its routes, and tests may', () => {
  const source = "import { routes } from './routes.ts'; routes();";
  for (const file of ['service.ts', 'objects.test.ts']) {
    assert.deepEqual(reported('ron/boundaries', `services/storage/src/${file}`, source), [], file);
  }
  assert.equal(reported('ron/boundaries', 'services/storage/src/metrics.ts', source).length, 1);
});

test('a model may import the explorer, a shipped file may not', () => {
  const source = "import { explore } from '@ron/explorer'; explore();";
  assert.deepEqual(reported('ron/boundaries', 'packages/kernel/src/channels/mpsc.model.ts', source), []);
  assert.equal(reported('ron/boundaries', 'packages/kernel/src/channels/mpsc.ts', source).length, 1);
});
