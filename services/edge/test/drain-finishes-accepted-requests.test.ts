/** SIGTERM under load: accepted requests are answered within the drain, and fills that outlive it are aborted and counted. */
import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { eventually, tempDir } from '@ron/testkit';
import type { Reply } from '@ron/testkit/service';
import { answer, authority, flagsFor, FRESH, HOST, originOf, removeFiles, startFilling } from './fill/support.ts';
import { makePmtiles } from './packs/make-pmtiles.ts';
import { startProcess } from './process.ts';

after(removeFiles);

/** An origin that answers `/slow` once it is released, and `/never` never. */
async function heldOrigin(init: Parameters<typeof originOf>[1] = {}) {
  const released = Promise.withResolvers<void>();
  const origin = await originOf((socket, head) => {
    if (head.startsWith('GET /slow')) void released.promise.then(() => socket.write(answer('late', FRESH)));
  }, init);
  return { origin, release: released.resolve, [Symbol.asyncDispose]: () => origin[Symbol.asyncDispose]() };
}

test('[edge I-6] SIGTERM while assets are read and filled', async () => {
  await using temp = await tempDir();
  await using held = await heldOrigin({ tls: authority.issue({ names: 'IP:127.0.0.1' }) });
  const { origin, release } = held;
  await mkdir(join(temp.path, 'data', 'packs'), { recursive: true });
  const pack = makePmtiles({ tiles: [{ z: 0, x: 0, y: 0, bytes: Buffer.from('tile') }], type: 'png' });
  await writeFile(join(temp.path, 'data', 'packs', 'p.pmtiles'), pack);
  const flags = flagsFor(origin).map((flag) => flag.replace(HOST, '127.0.0.1'));
  const { process: edge } = await startProcess(temp.path, { flags });
  await using _ = edge;
  const tile = '/edge/assets/pack/p/0/0/0.png';
  await eventually('the pack is mounted', async () => (await edge.send('GET', tile)).status === 200);
  let isRefused = false;
  const outcomes = new Set<string>();
  const reader = async (): Promise<void> => {
    while (!isRefused) {
      const outcome = await outcomeOf(edge.send('GET', tile));
      outcomes.add(outcome);
      isRefused = outcome !== '200';
    }
  };
  const readers = [reader(), reader()];
  const live = `/edge/assets/live/127.0.0.1:${origin.port}`;
  const accepted = Array.from({ length: 20 }, (_unused, index) => edge.send('GET', `${live}/slow${index % 10}.png`));
  const waiters = (): Promise<number> => edge.metric('queue_depth{queue="/edge/assets"}');
  await eventually('all of them wait', async () => (await waiters()) === accepted.length);
  edge.child.kill('SIGTERM');
  await eventually('it drains', () => isRefused);
  release();
  for (const reply of await Promise.all(accepted)) {
    assert.equal(reply.status, 200, reply.text);
    assert.equal(reply.text, 'late');
  }
  assert.equal(await edge.exit(), 0);
  await Promise.all(readers);
  for (const outcome of outcomes) assert.match(outcome, /^(?:200|503|ECONNRESET|ECONNREFUSED)$/);
  assert.equal(edge.logged('drained')?.['clean'], true);
  assert.equal(edge.logged('drained')?.['requests_cut'], 0);
});

test('[edge I-6] a fill that outlives the drain is aborted and counted, and its waiters get 503', async () => {
  await using held = await heldOrigin();
  const { origin } = held;
  const flags = ['--drain_deadline=1s', '--retry.live_fill.max_retries=0'];
  await using service = await startFilling(origin, { flags });
  const waiting = [service.get('/never.png'), service.get('/never.png'), service.get('/never2.png')];
  await eventually('the fills run', () => origin.requests.length === 2);
  const began_ms = performance.now();
  await service.edge.drain();
  const took_ms = performance.now() - began_ms;
  assert.ok(took_ms < 3000, `the drain took ${took_ms} ms`);
  for (const reply of await Promise.allSettled(waiting)) {
    if (reply.status === 'fulfilled') assert.equal(reply.value.status, 503, reply.value.text);
    else assert.match(String(reply.reason), /ECONNRESET|socket hang up/);
  }
  assert.ok((await service.metric('tasks_aborted_total{kind="worker"}')) >= 1);
});

async function outcomeOf(reply: Promise<Reply>): Promise<string> {
  return await reply.then(
    ({ status }) => String(status),
    (error: NodeJS.ErrnoException) => error.code ?? error.message,
  );
}
