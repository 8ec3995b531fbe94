/** kms is killed before and after each step of a withdrawal. The next start has the state before or after the step. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { test } from 'node:test';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { tempDir } from '@ron/testkit';
import { path, startService, type TestKms } from './support.ts';

const CHILD = fileURLToPath(new URL('./killed-child.ts', import.meta.url));
const STEPS_MAX = 60;

interface Told {
  readonly kid: string;
  readonly wrapped_b64: string;
  readonly acknowledged: readonly string[];
}

/** Undefined if the child ended before the step. */
async function killedAt(step: number, dir: string): Promise<Told | undefined> {
  // The child is not a test of the runner.
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const child = spawn(process.execPath, [...process.execArgv, CHILD, dir, String(step)], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [output, errors, [, signal]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close') as Promise<[number | null, NodeJS.Signals | null]>,
  ]);
  const last = output.split('\n').findLast((line) => line.startsWith('{'));
  assert.ok(last !== undefined, `step ${step}, ${signal}: ${output}${errors}`);
  return signal === 'SIGKILL' ? (JSON.parse(last) as Told) : undefined;
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
  const seen = new Set<string>();
  let step = 1;
  for (; step < STEPS_MAX; step++) {
    await using temp = await tempDir();
    const dir = join(temp.path, 'data');
    const told = await killedAt(step, dir);
    if (told === undefined) break;
    await using kms = await startService({ dir });
    seen.add(await assertWhole(kms, told));
  }
  assert.deepEqual([...seen].toSorted(), ['deleted', 'deleting', 'destroying', 'disabled', 'enabled']);
  assert.ok(step > 15 && step < STEPS_MAX, `${step} steps`);
});
