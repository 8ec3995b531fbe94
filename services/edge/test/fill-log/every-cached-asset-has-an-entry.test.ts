/** Kill -9 during fills: an asset that is found afterwards has its entry in the log, and the log verifies. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import type { EdgeWhyDto } from '@ron/proto';
import { eventually, tempDir } from '@ron/testkit';
import { dirSource, verifyLog } from '@ron/tlog';
import { answer, FRESH } from '../fill/support.ts';
import { numberedOrigin } from '../modes/support.ts';
import { startProcess, type EdgeProcess } from '../process.ts';

const ROUNDS = 2;
const FILLS = 60;

test('after kill -9 no cached asset lacks its entry, and all entries verify', async () => {
  await using temp = await tempDir();
  const bodyOf = (head: string): string => `tile of ${/^GET (\S+)/.exec(head)![1]}`;
  await using numbered = await numberedOrigin(temp.path, (socket, head) => socket.write(answer(bodyOf(head), FRESH)));
  const flags = ['--edge.mode=live', '--ingress.rps_limit=100000', ...numbered.flags];
  const start = (): Promise<EdgeProcess> => startProcess(temp.path, { flags });
  const paths: string[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const { process } = await start();
    await using _ = process;
    const fresh = Array.from({ length: FILLS }, (_each, at) => `/${round}/${at}.png`);
    paths.push(...fresh);
    const answers = fresh.map(async (path) => await process.send('GET', numbered.pathOf(path)).catch(() => undefined));
    // Some are kept, some are on their way.
    await eventually('some are kept', async () => (await process.metric('edge_kept_total{result="kept"}')) > round * 5);
    await process.kill();
    await Promise.all(answers);
  }
  const { process, headers } = await start();
  await using _ = process;
  const why = async (path: string): Promise<EdgeWhyDto> => {
    const query = encodeURIComponent(numbered.pathOf(path));
    return (await process.send('GET', `/edge/why?path=${query}`, { headers })).json as EdgeWhyDto;
  };
  // Signs the entries that the crashes left unsigned.
  assert.equal((await process.send('GET', numbered.pathOf('/last.png'))).status, 200);
  await eventually('all are signed', async () => (await process.metric('edge_fill_log_unsigned')) === 0);
  let found = 0;
  for (const path of paths) {
    const { state, tier, proof, proof_problem } = await why(path);
    if (state === 'missing') continue;
    found += 1;
    assert.equal(tier, 'cas');
    assert.ok(proof !== undefined, `${path} has no entry: ${proof_problem}`);
    const { text } = await process.send('GET', numbered.pathOf(path));
    assert.equal(text, `tile of ${path}`);
  }
  assert.ok(found > ROUNDS, `${found} of ${paths.length} were kept`);
  assert.equal(await process.stop(), 0);
  const dir = join(temp.path, 'data', 'fills');
  const vkeys = (await readFile(join(dir, 'vkeys'), 'utf8')).trim().split('\n');
  await using source = await dirSource(dir);
  const audit = await verifyLog(source, vkeys, { signal: NEVER });
  assert.ok(audit.ok, JSON.stringify(audit));
  assert.ok(audit.checkpoint.size >= found);
});
