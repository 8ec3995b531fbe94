/**
 * kms is killed before and after each step of a withdrawal. The next start has the state before or after the step. One
 * process stops at each step, and its files are copied: a process that is killed there leaves the same bytes.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { eventually, tempDir } from '@ron/testkit';
import { path, startService, type TestKms } from './support.ts';

const CHILD = fileURLToPath(new URL('./killed-child.ts', import.meta.url));

interface Told {
  readonly kid: string;
  readonly wrapped_b64: string;
  readonly acknowledged: readonly string[];
}

/** Withdraws a key in a child process, and copies its files at each step. Returns the acknowledged states of each copy. */
async function copiesOfEachStep(dir: string, copy: (step: number) => string): Promise<Told[]> {
  // The child is not a test of the runner.
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const child = spawn(process.execPath, [...process.execArgv, CHILD, dir], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const closed = once(child, 'close');
  const copies: Told[] = [];
  let told: Told | undefined;
  for await (const line of createInterface(child.stdout)) {
    if (line.startsWith('{')) told = JSON.parse(line) as Told;
    if (line !== 'stop') continue;
    await eventually('all threads are stopped', () => areStopped(child.pid!));
    await cp(dir, copy(copies.length), { recursive: true });
    copies.push(told!);
    child.kill('SIGCONT');
  }
  assert.deepEqual(await closed, [0, null]);
  return copies;
}

async function areStopped(pid: number): Promise<boolean> {
  const threads = await readdir(`/proc/${pid}/task`);
  const stats = await Promise.all(threads.map((id) => readFile(`/proc/${pid}/task/${id}/stat`, 'latin1')));
  return stats.every((stat) => stat.slice(stat.lastIndexOf(')') + 2).startsWith('T'));
}

/** Each acknowledged state, and the states that the step after it may have reached. */
const NEXT: Readonly<Record<string, readonly string[]>> = {
  enabled: ['enabled'],
  raised: ['enabled', 'disabled'],
  disabled: ['disabled', 'enabled'],
  'enabled again': ['enabled', 'deleting'],
  deleting: ['deleting', 'destroying', 'deleted'],
  deleted: ['deleted'],
};

async function assertWhole(kms: TestKms, { kid, wrapped_b64, acknowledged }: Told): Promise<string> {
  const name = kid.slice(0, -3);
  const state = async (): Promise<string> => (await kms.get(`/keys/${path(name)}`)).json.state as string;
  const unwraps = async (): Promise<boolean> => (await kms.post('/unwrap', { kid, wrapped_b64 })).status === 200;
  const found = await state();
  assert.ok(NEXT[acknowledged.at(-1)!]!.includes(found), `${found} after ${acknowledged.at(-1)}`);
  const hasData = found !== 'destroying' && found !== 'deleted';
  if (hasData) {
    if (found === 'deleting') assert.equal((await kms.post(`/keys/${path(name)}/restore`)).status, 200);
    await kms.post(`/keys/${path(name)}/enable`);
    assert.ok(await unwraps(), `${found}: the key material is lost`);
  } else {
    assert.equal(await unwraps(), false);
    assert.equal((await kms.post('/datakey', { kid: name })).status, 409, 'a half-deleted key is not usable');
    const done = await kms.post(`/keys/${path(name)}/delete`, { whole: true });
    assert.equal(done.json.state, 'deleted', done.text);
    assert.equal(await state(), 'deleted');
    const { versions } = kms.kms.vault.registry.index.record(name);
    assert.deepEqual(
      versions.filter(({ handle }) => handle !== undefined),
      [],
    );
  }
  return found;
}

test('killed at any step of a withdrawal, a key is whole or unusable, and the same call resumes', async () => {
  await using temp = await tempDir();
  const copy = (step: number): string => join(temp.path, String(step));
  const copies = await copiesOfEachStep(join(temp.path, 'data'), copy);
  const seen = new Set<string>();
  for (const [step, told] of copies.entries()) {
    await using kms = await startService({ dir: copy(step) });
    seen.add(await assertWhole(kms, told));
  }
  assert.deepEqual([...seen].toSorted(), ['deleted', 'deleting', 'destroying', 'disabled', 'enabled']);
  assert.ok(copies.length > 15, `${copies.length} steps`);
});
