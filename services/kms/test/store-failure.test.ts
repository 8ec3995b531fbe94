/** A store that cannot continue refuses every change at once and ends the process; the next start has all commits. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { NEVER } from '@ron/kernel';
import { tempDir } from '@ron/testkit';
import { MADE } from '../src/vault/tables.ts';
import { openVaultStore } from '../src/vault/vault.ts';

const CHILD = fileURLToPath(new URL('./failing-store-child.ts', import.meta.url));
const EXIT_FATAL = 70;
const isTraceable = process.getuid?.() === 0 && spawnSync('strace', ['--version']).status === 0;
const skip = isTraceable ? false : 'needs root and strace';

interface Line {
  readonly key?: string;
  readonly refused?: string;
  readonly problem?: string;
  readonly ready?: number | 'stopped';
}

async function failWith(fault: string): Promise<{ end: unknown; problem: string; log: string }> {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const child = spawn(process.execPath, [...process.execArgv, CHILD, dir, fault], {
    env,
    stdio: ['ignore', 'ignore', 'pipe'],
    timeout: 40_000,
  });
  const [log, [code, signal]] = await Promise.all([
    text(child.stderr),
    once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>,
  ]);
  const lines = (await readFile(`${dir}.lines`, 'utf8')).trimEnd().split('\n');
  const told = lines.map((line) => JSON.parse(line) as Line);
  const last = told.find(({ problem }) => problem !== undefined);
  assert.ok(last !== undefined, `${code} ${signal}: ${log}`);
  assert.ok(last.ready === 503 || last.ready === 'stopped', `/readyz: ${last.ready}`);
  const refusals = told.flatMap(({ refused }) => refused ?? []);
  assert.ok(refusals.length >= 200);
  assert.deepEqual([...new Set(refusals)], ['not_ready']);
  const keys = told.flatMap(({ key }) => key ?? []);
  assert.ok(keys.length >= 200);
  await using store = await openVaultStore(join(dir, 'vault'), { kek: new Uint8Array(32) }, NEVER);
  assert.deepEqual(
    keys.filter((key) => !store.has(MADE, key)),
    [],
    'acknowledged and lost',
  );
  await store.commit((draft) => draft.put(MADE, 'again', Buffer.alloc(1)), NEVER);
  return { end: code ?? signal, problem: last.problem!, log };
}

test('a meta page that was not written ends the process with the code of a failed task', async () => {
  const { end, problem, log } = await failWith('meta');
  assert.match(problem, /vault failed: /);
  assert.match(log, /store_monitor/);
  assert.equal(end, EXIT_FATAL);
});

test('a write that does not end is given up, and the process ends although its thread does not', { skip }, async () => {
  const { end, problem } = await failWith('fdatasync:delay_enter=8000000');
  assert.match(problem, /a write did not end within 1000 ms/);
  assert.equal(end, 'SIGKILL');
});

test('the death of the writing thread during commits ends the process', async () => {
  const { end, problem } = await failWith('thread');
  assert.match(problem, /the writing thread died|a write did not end/);
  assert.ok(end === EXIT_FATAL || end === 'SIGKILL', String(end));
});
