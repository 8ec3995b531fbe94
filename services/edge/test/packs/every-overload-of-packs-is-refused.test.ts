/** Uploads beyond the limits: refused at once with 429, and accepted again afterwards. */
import { readdir } from 'node:fs/promises';
import { request } from 'node:http';
import { test } from 'node:test';
import { eventually } from '@ron/testkit';
import { assertRefusal } from '@ron/testkit/service';
import { startService } from '../support.ts';
import { mountPack, packsDir, putPack, somePmtiles, untilReady } from './registry-support.ts';

const UPLOADS_MAX = 16;

// [edge I-3] [edge I-9]
test('a seventeenth upload is refused before its body is read, and an upload whose client leaves is forgotten', async () => {
  await using edge = await startService();
  await untilReady(edge);
  const headers = await edge.allow();
  const body = somePmtiles(1);
  const uploads = Array.from({ length: UPLOADS_MAX }, (_, at) => {
    const upload = request(`${edge.url}/edge/packs/p${at}`, { method: 'PUT', headers });
    upload.on('error', () => undefined);
    upload.write(body.subarray(0, 200));
    return upload;
  });
  const unfinished = async (): Promise<number> =>
    (await readdir(packsDir(edge))).filter((file) => file.endsWith('.upload')).length;
  await eventually('all uploads have begun', async () => (await unfinished()) === UPLOADS_MAX);
  assertRefusal(await putPack(edge, 'more', body), 429, 'busy');
  for (const upload of uploads) upload.destroy();
  await eventually('nothing of them is left', async () => (await unfinished()) === 0);
  await mountPack(edge, 'more', body);
});
