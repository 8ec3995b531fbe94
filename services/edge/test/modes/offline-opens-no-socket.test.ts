/** Offline mode: connects and DNS queries of the real process are watched with strace. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { missing, TEST_TOOLS } from '@ron/custody/testing';
import { eventually, tempDir } from '@ron/testkit';
import { formatAddress } from '@ron/proto';
import { answer } from '../fill/support.ts';
import { startProcess, type EdgeProcess } from '../process.ts';
import { numberedOrigin } from './support.ts';

const skip = missing(TEST_TOOLS.strace) ?? false;
/** Every way to reach another host or process. An accepted connection is written to with `write` and `writev`. */
const CALLS = 'connect,sendto,sendmsg,sendmmsg';

const traced = (file: string): readonly string[] => ['strace', '-D', '-f', '-qq', '-o', file, '-e', `trace=${CALLS}`];

/** The targets of the traced calls. */
async function targetsIn(file: string): Promise<string[]> {
  const lines = (await readFile(file, 'utf8')).split('\n');
  return lines.filter(
    (line) => new RegExp(`(${CALLS.replaceAll(',', '|')})\\(`).test(line) && line.includes('sa_family'),
  );
}

async function kept({ process }: EdgeProcess): Promise<void> {
  await eventually('kept', async () => (await process.metric('edge_kept_total{result="kept"}')) === 1);
}

test('offline, a stale asset is served, a miss is refused, and no socket is opened', { skip }, async () => {
  await using temp = await tempDir();
  await using numbered = await numberedOrigin(temp.path, (socket) =>
    socket.write(answer('tile', 'cache-control: max-age=0')),
  );
  const { flags, pathOf, origin } = numbered;
  const live = join(temp.path, 'live.trace');
  {
    const edge = await startProcess(temp.path, { flags: ['--edge.mode=live', ...flags], under: traced(live) });
    await using _ = edge.process;
    assert.equal((await edge.process.send('GET', pathOf('/a.png'))).text, 'tile');
    await kept(edge);
    assert.equal(await edge.process.stop(), 0);
  }
  const connects = await targetsIn(live);
  assert.ok(
    connects.some((line) => line.includes(`htons(${origin.port})`)),
    'the watch sees the connection of a fill',
  );
  const requests = origin.requests.length;

  const offline = join(temp.path, 'offline.trace');
  const socket = join(temp.path, 'storage.sock');
  const edge = await startProcess(temp.path, {
    flags: [...flags, `--edge.storage_url=unix:${socket}`],
    under: traced(offline),
  });
  await using _ = edge.process;
  const { headers } = edge;
  const stale = await edge.process.send('GET', pathOf('/a.png'));
  assert.equal(stale.text, 'tile');
  assert.match(String(stale.headers['cache-status']), /hit; detail=cas/);
  const refused = await edge.process.send('GET', pathOf('/b.png'));
  assert.equal(refused.status, 403);
  assert.equal(refused.headers['x-reason'], 'not_allowed');
  assert.equal(await edge.process.metric('edge_rejects_total{reason="not_allowed"}'), 1);
  const named = await edge.process.send('GET', '/edge/assets/live/tiles.example.org/a.png');
  assert.equal(named.headers['x-reason'], 'not_allowed');
  const path = encodeURIComponent(pathOf('/a.png'));
  assert.equal((await edge.process.send('GET', `/edge/why?path=${path}`, { headers })).status, 200);
  // The one socket that is configured.
  const object = formatAddress(new Uint8Array(32));
  assert.ok((await edge.process.send('GET', `/edge/assets/o/${object}`)).status >= 500);
  assert.equal(await edge.process.stop(), 0);
  const targets = await targetsIn(offline);
  assert.ok(targets.length > 0, 'the watch sees the connection to storage');
  assert.deepEqual(
    targets.filter((line) => !line.includes(`sun_path="${socket}"`)),
    [],
  );
  assert.equal(origin.requests.length, requests);
});
