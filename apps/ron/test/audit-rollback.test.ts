/** Earlier checkpoints and proofs detect an audit log that was rolled back, rewritten or replaced. Needs no service. */
import assert from 'node:assert/strict';
import { cp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { TransparencyLog } from '@ron/tlog';
import { memorySigner } from '@ron/tlog/testing';
import { ron, temporaryDir } from './support.ts';

const ORIGIN = 'example.com/audit';
const { signal } = new AbortController();
const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');

/** A log with 700 entries, a copy of it with 300, and checkpoints and a proof from both times. */
async function logIn(work: string, text = 'entry') {
  const signer = memorySigner(ORIGIN);
  const [dir, before] = [join(work, 'log'), join(work, 'before')];
  const log = await TransparencyLog.open({ dir, origin: ORIGIN, signers: [signer], signal });
  const grow = async (size: number): Promise<string> => {
    const entries = Array.from({ length: size - log.size }, (_, at) => Buffer.from(`${text} ${log.size + at}`));
    await log.append(entries, signal);
    return (await log.writeCheckpoint(signal)).text;
  };
  await writeFile(join(dir, 'vkeys'), `${signer.vkey}\n`);
  await writeFile(join(work, 'early'), await grow(300));
  await cp(dir, before, { recursive: true });
  await writeFile(join(work, 'late'), await grow(700));
  const { index, size, leaf, path } = await log.proof(650);
  const proof = {
    log_index: index,
    tree_size: size,
    leaf_hash_b64: base64(leaf),
    path_b64: path.map(base64),
    entry_b64: base64(await log.entry(index)),
    checkpoint: log.checkpoint!.text,
  };
  await log.close();
  return { dir, before, vkey: signer.vkey, proof };
}

const setUp = async (t: TestContext) => {
  const work = await temporaryDir(t);
  const made = await logIn(work);
  const run = (...args: string[]) => ron(t, ['audit', 'verify', ...args], { cwd: work });
  const write = (name: string, value: unknown) => writeFile(join(work, name), JSON.stringify(value));
  return { work, run, write, ...made };
};

test('an earlier checkpoint: the log extends it, or was rolled back or rewritten', async (t) => {
  const { run, dir, before, work } = await setUp(t);
  const good = await run(dir, '--since', 'early', '--since', 'late');
  assert.equal(good.code, 0, good.stderr);
  assert.match(good.text, /^extends +early, 300 entries$/m);
  assert.equal((await run(before)).code, 0, 'the log alone cannot reveal a rollback');
  const putBack = await run(before, '--since', 'late');
  assert.equal(putBack.code, 65);
  assert.match(putBack.stderr, /covers 300 entries, but late covers 700: the log was rolled back/);
  const other = await temporaryDir(t);
  const { vkey } = await logIn(other, 'forged');
  const stranger = await run(join(other, 'log'), '--since', join(work, 'early'));
  assert.deepEqual([stranger.code, /cannot be trusted/.test(stranger.stderr)], [65, true], stranger.stderr);
  assert.equal((await run(dir, '--vkey', vkey)).code, 65, 'signed by another key');
  assert.equal((await run(dir, '--since', 'nowhere')).code, 66);
});

test('damaged keys beside the log: the error names the file, and --vkey replaces them', async (t) => {
  const { run, dir, vkey } = await setUp(t);
  await writeFile(join(dir, 'vkeys'), `${vkey.replace('+', 'Z')}\n`);
  const damaged = await run(dir);
  assert.equal(damaged.code, 65, damaged.stderr);
  assert.match(damaged.stderr, /vkeys is damaged/);
  assert.equal((await run(dir, '--vkey', vkey)).code, 0);
});

test('an earlier proof: verified alone and against the log', async (t) => {
  const { run, write, dir, before, vkey, proof } = await setUp(t);
  await write('proof.json', proof);
  await write('answer.json', { kid: 'k', proof });
  for (const file of ['proof.json', 'answer.json']) {
    const alone = await run('--proof', file, '--vkey', vkey);
    assert.equal(alone.code, 0, alone.stderr);
    assert.match(alone.text, /entry 650 of 700, verified\nentry +entry 650$/m);
  }
  assert.equal((await run(dir, '--proof', 'proof.json')).code, 0);
  assert.match((await run(before, '--proof', 'proof.json')).stderr, /the log was rolled back/);
  const bad: [unknown, RegExp][] = [
    [{ ...proof, entry_b64: base64(Buffer.from('entry 651')) }, /does not lead from entry 650/],
    [{ ...proof, log_index: 651 }, /does not lead from entry 651/],
    [{ ...proof, log_index: -1 }, /does not lead/],
    [{ ...proof, tree_size: 300 }, /for a log of 300 entries/],
    [{ ...proof, path_b64: [] }, /does not lead/],
    [{ ...proof, path_b64: ['*'] }, /base64/],
    [{ ...proof, checkpoint: proof.checkpoint.replace('700', '701') }, /cannot be trusted/],
    [{ ...proof, checkpoint: undefined }, /lacks/],
    [[], /lacks/],
    ['text', /not JSON/],
    ['x'.repeat(300_000), /more than/],
  ];
  for (const [value, why] of bad) {
    await write('bad.json', value);
    const refused = await run('--proof', 'bad.json', '--vkey', vkey);
    assert.equal(refused.code, 65, JSON.stringify(value).slice(0, 100));
    assert.match(refused.stderr, why);
  }
});
