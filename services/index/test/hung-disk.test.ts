/** [index I-7] A disk that does not answer: health routes and cached answers continue, everything else ends at its deadline. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { formatAddress } from '@ron/proto';
import { eventually } from '@ron/testkit';
import { assertRefusal } from '@ron/testkit/service';
import { startService } from './support.ts';

const address = (byte: number) => formatAddress(new Uint8Array(32).fill(byte));
const entryOf = (byte: number) => ({ address: address(byte), size: 1, media_type: 'text/plain' });

test('the gate db closes while the disk hangs, health routes answer, and everything works afterwards', async () => {
  const store_module = new URL('./store/faulty-thread.ts', import.meta.url);
  const flags = ['--cache.ttl_s=3600', '--index.storage_url=http://127.0.0.1:7101'];
  await using service = await startService({ flags, store_module });
  const gateOf = async (): Promise<{ status: number; open: boolean }> => {
    const { status, json } = await service.send('GET', '/readyz');
    return { status, open: json.gates.find(({ gate }: { gate: string }) => gate === 'db').open };
  };
  assert.equal((await service.call('POST', '/announce', { entries: [entryOf(1)] })).status, 200);
  const cached = async () => (await service.send('GET', `/resolve/${address(1)}`)).json.source === 'cache';
  await eventually('cached', cached);
  const pipe = join(service.dir, 'db', 'hang');
  execFileSync('mkfifo', [pipe]);
  const hung = [
    service.send('GET', `/resolve/${address(2)}`),
    service.call('POST', '/announce', { entries: [entryOf(3)] }),
  ];
  for (const path of ['/healthz', '/metrics', '/version']) assert.equal((await service.send('GET', path)).status, 200);
  assert.ok(await cached(), 'answers in memory need no disk');
  for (const reply of await Promise.all(hung)) assertRefusal(reply, 504, 'timeout');
  await eventually('the gate closes', async () => !(await gateOf()).open);
  assert.equal((await gateOf()).status, 503, 'it is hard');
  assert.equal((await service.send('GET', '/healthz')).status, 200);
  await release(pipe);
  await eventually('the gate opens', async () => (await gateOf()).open);
  assert.equal((await gateOf()).status, 200);
  assert.equal((await service.call('POST', '/announce', { entries: [entryOf(3)] })).status, 200);
  assert.equal((await service.send('GET', `/resolve/${address(3)}`)).status, 200);
});

/** A writer lets every thread pass that waits for one; without the pipe no further one waits. */
async function release(pipe: string): Promise<void> {
  await using _ = await open(pipe, 'r+');
  await rm(pipe);
}
