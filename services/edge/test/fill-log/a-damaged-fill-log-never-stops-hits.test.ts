import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { sched } from '@ron/kernel';
import { FaultyDisk } from '@ron/log/testing';
import type { EdgeWhyDto } from '@ron/proto';
import { eventually, tempDir } from '@ron/testkit';
import { answer, FRESH, originOf, removeFiles, startFilling, type Filling } from '../fill/support.ts';

after(removeFiles);

const statusOf = async (edge: Filling, path: string): Promise<string> =>
  String((await edge.get(path)).headers['cache-status']);

/** The problem of the gate `fill_log`; undefined while it is open. The service stays ready. */
async function gateOf(edge: Filling): Promise<string | undefined> {
  // Packs are scanned after the start.
  await eventually('ready', async () => (await edge.send('GET', '/readyz')).status === 200);
  const { json } = await edge.send('GET', '/readyz');
  const { gates, degraded } = json as { gates: { gate: string; reason?: string }[]; degraded: string[] };
  return degraded.includes('fill_log') ? gates.find(({ gate }) => gate === 'fill_log')!.reason : undefined;
}

async function kept(edge: Filling, count: number): Promise<void> {
  await eventually('kept', async () => (await edge.metric('edge_kept_total{result="kept"}')) === count);
}

test('a damaged log: hits are served, fills are answered and not cached, the gate explains it', async () => {
  await using origin = await originOf((socket) => socket.write(answer('tile', FRESH)));
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  {
    await using edge = await startFilling(origin, { dir });
    await edge.get('/a.png');
    await kept(edge, 1);
  }
  const entries = join(dir, 'fills', 'entries');
  const bytes = await readFile(entries);
  bytes[bytes.length - 5]! ^= 1;
  await writeFile(entries, bytes);
  await using edge = await startFilling(origin, { dir });
  assert.match((await gateOf(edge)) ?? '', /^the fill log cannot be used: .*move `fills` and `fills.checkpoint` away/);
  assert.match(await statusOf(edge, '/a.png'), /hit; detail=cas/);
  for (let at = 0; at < 2; at++) {
    const reply = await edge.get('/b.png');
    assert.equal(reply.text, 'tile');
    assert.match(String(reply.headers['cache-status']), /fwd=miss(?!.*stored)/);
  }
  assert.equal(origin.requests.length, 3);
  const path = encodeURIComponent(edge.pathOf('/a.png'));
  const why = (await edge.call('GET', `/edge/why?path=${path}`)).json as EdgeWhyDto;
  assert.equal(why.tier, 'ram');
  assert.match(why.proof_problem ?? '', /cannot be used/);
  assert.equal((await edge.call('GET', '/edge/fills/checkpoint')).status, 503);
});

test('a full disk under the log: fills are answered and not cached until it has room', async () => {
  const disk = new FaultyDisk();
  await using origin = await originOf((socket) => socket.write(answer('tile', FRESH)));
  await using edge = await startFilling(origin, { fs: disk });
  disk.fail(join('fills', 'entries'), 'ENOSPC');
  assert.equal((await edge.get('/a.png')).text, 'tile');
  await eventually('not kept', async () => (await edge.metric('edge_kept_total{result="failed"}')) === 1);
  assert.match((await gateOf(edge)) ?? '', /^fills are not cached: /);
  assert.match(await statusOf(edge, '/a.png'), /fwd=miss(?!.*stored)/);
  disk.mend();
  await eventually('the gate is open, without a fill', async () => (await gateOf(edge)) === undefined);
  assert.equal((await edge.get('/a.png')).text, 'tile');
  await kept(edge, 1);
  assert.match(await statusOf(edge, '/a.png'), /hit/);
  assert.equal(await gateOf(edge), undefined);
});

test('a log that does not respond delays no answer', async () => {
  const disk = new FaultyDisk();
  await using origin = await originOf((socket) => socket.write(answer('tile', FRESH)));
  await using edge = await startFilling(origin, { fs: disk });
  disk.hold(join('fills', 'entries'));
  const began_ms = sched.now_ms();
  for (const path of ['/a.png', '/b.png', '/a.png']) assert.equal((await edge.get(path)).text, 'tile');
  assert.ok(sched.now_ms() - began_ms < 4000, 'no answer waits for the deadline');
  disk.mend();
  await eventually('kept', async () => (await edge.metric('edge_kept_total{result="kept"}')) >= 1);
});

test('a clock that jumps by an hour, both ways: the log goes on, and no asset on disk of another hour is fresh', async (t) => {
  let body = 'one';
  await using origin = await originOf((socket) => socket.write(answer(body, FRESH, `etag: "${body}"`)));
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const real = sched.wall_ms.bind(sched);
  let shift_ms = 0;
  t.mock.method(sched, 'wall_ms', () => real() + shift_ms);
  for (const [at, hours] of [0, 1, -1, 0].entries()) {
    shift_ms = hours * 3_600_000;
    await using edge = await startFilling(origin, { dir });
    body = `body-${at}`;
    assert.equal((await edge.get('/a.png')).text, body, 'it is asked for again');
    await kept(edge, 1);
    assert.match(await statusOf(edge, '/a.png'), /hit; detail=ram/);
    assert.equal(await edge.metric('edge_fill_log_entries'), at + 1);
    await eventually('all are signed', async () => (await edge.metric('edge_fill_log_unsigned')) === 0);
    assert.equal(await gateOf(edge), undefined);
  }
});
