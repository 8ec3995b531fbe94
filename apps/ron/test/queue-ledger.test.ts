/** A node whose log of mailbox lost a message: mailbox refuses requests until the operator accepts the loss. */
import assert from 'node:assert/strict';
import { cp, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { ProveReportDto } from '@ron/proto';
import { command, temporaryDir, up, type Ended } from './support.ts';

test('[mailbox I-8] a lost message closes mailbox; prove and doctor show it, and accept goes on without it', async (t) => {
  const work = await temporaryDir(t);
  const dir = join(work, 'node');
  const data = join(dir, 'mailbox/data');
  const start = () => up(t, dir, ['--only', 'mailbox']);
  const ron = (...args: string[]): Promise<Ended> => command([...args, '--dir', dir]);

  const first = await start();
  await writeFile(join(work, 'lines'), 'first\nsecond\nthird\n');
  assert.equal((await ron('queue', 'send', 'jobs', join(work, 'lines'), '--lines')).code, 0);
  first.process.kill('SIGTERM');
  await first.process.ended;

  const sound = await ron('queue', 'prove', data);
  assert.equal(sound.code, 0, sound.stderr);
  assert.match(sound.text, /^log +\d+ records in 1 segment, .* B, all verified$/m);
  assert.match(sound.text, /^ledger +jobs: 3 sent = 0 acked \+ 3 waiting \+ 0 dead \+ 0 gone$/m);
  assert.equal((await ron('queue', 'accept', '--reason', 'none', '--yes')).code, 1, 'there is nothing to accept');
  const copy = join(work, 'copy');
  await cp(data, copy, { recursive: true });

  await loseMessage(data, 'second');
  const offline = await ron('queue', 'prove', '--json');
  assert.equal(offline.code, 65, offline.stderr);
  const { ok, problem } = JSON.parse(offline.text) as ProveReportDto;
  assert.deepEqual([ok, problem], [false, 'record 4 is missing']);
  assert.equal((await ron('queue', 'prove', copy)).code, 0, 'the copy is sound');
  assert.equal((await ron('queue', 'prove', work)).code, 66, 'not a directory of mailbox');

  const second = await start();
  const refused = await ron('queue', 'receive', 'jobs');
  assert.equal(refused.code, 69, refused.stderr);
  assert.match(refused.stderr, /^ron: mailbox is not ready: .*record 4 is missing/);
  const doctor = await ron('doctor');
  assert.equal(doctor.code, 1);
  assert.match(doctor.text, /^fail {2}mailbox at .* is not ready: ledger \(record 4 is missing\)$/m);
  const shown = await ron('queue', 'prove');
  assert.equal(shown.code, 65);
  assert.match(shown.stderr, /^mailbox is stopped or not ready; reading .*mailbox\/data\n/);
  assert.equal((await ron('queue', 'accept', '--reason', 'disk replaced')).code, 64, 'not without --yes');
  assert.equal((await ron('queue', 'stats')).code, 69, 'nothing was accepted');

  const accepted = await ron('queue', 'accept', '--reason', 'disk replaced', '--yes');
  assert.equal(accepted.code, 0, accepted.stderr);
  assert.match(accepted.text, /^accepted +record 4 is missing\nmailbox +is ready\n$/);
  const received = await ron('queue', 'receive', 'jobs', '--max', '9', '--lines', '--ack');
  assert.equal(received.text, 'first\nthird\n');
  const proven = await ron('queue', 'prove');
  assert.equal(proven.code, 0, proven.stderr);
  await assert.rejects(stat(join(data, 'accept.json')), { code: 'ENOENT' });

  second.process.kill('SIGTERM');
  await second.process.ended;
  await start();
  assert.equal((await ron('queue', 'stats', 'jobs')).code, 0, 'the loss stays accepted');
});

/** Damages the head of the record of a message, which hides the whole record. */
async function loseMessage(data: string, payload: string): Promise<void> {
  const [name] = await readdir(join(data, 'segments'));
  const file = join(data, 'segments', name!);
  const bytes = await readFile(file);
  const at = bytes.indexOf(payload);
  assert.ok(at > 60);
  bytes.fill(0xff, at - 60, at - 50);
  await writeFile(file, bytes);
}
