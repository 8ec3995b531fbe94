import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { eventually, tempDir } from '@ron/testkit';
import type { Reply } from '@ron/testkit/service';
import { makePmtiles } from '../packs/make-pmtiles.ts';
import { untilReady } from '../packs/registry-support.ts';
import { startService, type TestEdge } from '../support.ts';
import { quarterTiles } from './make-tiles.ts';

async function withPack(...flags: string[]): Promise<{ readonly edge: TestEdge } & AsyncDisposable> {
  const temp = await tempDir();
  await mkdir(join(temp.path, 'packs'));
  await writeFile(
    join(temp.path, 'packs', 'quarters.pmtiles'),
    makePmtiles({ tiles: quarterTiles(1, 0), type: 'png' }),
  );
  const edge = await startService({ dir: temp.path, flags });
  await untilReady(edge);
  return {
    edge,
    async [Symbol.asyncDispose]() {
      await edge[Symbol.asyncDispose]();
      await temp[Symbol.asyncDispose]();
    },
  };
}

/** The first request begins to build the files of the page. */
async function pageOf(edge: TestEdge, method: string, headers: Record<string, string> = {}): Promise<Reply> {
  let reply: Reply | undefined;
  await eventually('the page is built', async () => {
    reply = await edge.send(method, '/edge/map/quarters', { headers });
    return reply.status !== 503;
  });
  return reply!;
}

test('the policy of the page allows this server only, and no inline code', async () => {
  await using packed = await withPack();
  const { status, headers } = await pageOf(packed.edge, 'GET');
  assert.equal(status, 200);
  assert.equal(headers['referrer-policy'], 'no-referrer', 'it is sent once');
  const policy = String(headers['content-security-policy']).replace(/'sha256-[A-Za-z0-9+/]{43}='/, "'sha256-MAP'");
  assert.deepEqual(policy.split('; '), [
    "default-src 'none'",
    "script-src 'self' 'wasm-unsafe-eval' 'sha256-MAP'",
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self' blob: data:",
    "worker-src 'self'",
    "frame-ancestors 'self'",
    "base-uri 'none'",
    "form-action 'none'",
  ]);
  const head = await pageOf(packed.edge, 'HEAD');
  assert.deepEqual([head.status, head.body.length], [200, 0]);
});

test('with auth.reads the page needs edge:get, and its program code does not', async () => {
  await using packed = await withPack('--auth.reads=true');
  const { edge } = packed;
  assert.equal((await edge.send('GET', '/edge/map/quarters')).status, 401);
  const headers = await edge.allow({ scopes: ['edge:get'] });
  const page = await pageOf(edge, 'GET', headers);
  assert.equal(page.status, 200);
  const script = /<script type="module" src="\.\/([^"]+)">/.exec(page.body.toString())![1]!;
  const answer = await edge.send('GET', `/edge/map/${script}`);
  assert.deepEqual([answer.status, answer.headers['content-type']], [200, 'text/javascript; charset=utf-8']);
});
