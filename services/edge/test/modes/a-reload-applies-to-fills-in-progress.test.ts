/** SIGHUP to the real process while fills wait for their origin. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { eventually, tempDir } from '@ron/testkit';
import { answer, FRESH } from '../fill/support.ts';
import { startProcess } from '../process.ts';
import { numberedOrigin } from './support.ts';

test('a reload to offline refuses fills in progress, and nothing of them is kept; back to live they succeed', async () => {
  await using temp = await tempDir();
  let release: () => void = () => undefined;
  let isHeld = true;
  await using numbered = await numberedOrigin(temp.path, (socket) => {
    const reply = (): unknown => socket.write(answer('tile', FRESH));
    if (isHeld) release = reply;
    else reply();
  });
  const { pathOf, origin, flags } = numbered;
  const config = join(temp.path, 'edge.toml');
  const setMode = (mode: string): Promise<void> => writeFile(config, `edge.mode = "${mode}"\n`);
  await setMode('live');
  const { process: edge, headers } = await startProcess(temp.path, { flags: [`--config=${config}`, ...flags] });
  await using _ = edge;
  const waiting = edge.send('GET', pathOf('/a.png'));
  await eventually('the origin has the request', () => origin.requests.length === 1);
  const why = async (path: string): Promise<{ state: string; fillable: string }> => {
    const query = encodeURIComponent(pathOf(path));
    return (await edge.send('GET', `/edge/why?path=${query}`, { headers })).json as { state: string; fillable: string };
  };
  await setMode('offline');
  edge.child.kill('SIGHUP');
  await eventually('offline', async () => (await why('/a.png')).fillable === 'not_allowed');
  release();
  const reply = await waiting;
  assert.deepEqual([reply.status, reply.headers['x-reason']], [403, 'not_allowed']);
  assert.equal((await why('/a.png')).state, 'missing');
  assert.equal(await edge.metric('edge_fill_log_entries'), 0);
  isHeld = false;
  await setMode('live');
  edge.child.kill('SIGHUP');
  await eventually('live', async () => (await why('/a.png')).fillable === 'yes');
  await eventually('it is fetched', async () => (await edge.send('GET', pathOf('/a.png'))).text === 'tile');
  await eventually('it is kept', async () => (await why('/a.png')).state === 'fresh');
  assert.equal(await edge.stop(), 0);
});
