/** A process of another user at the port of a stopped service gets no request, and its answers are not believed. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { command, inTemporaryDir } from './support.ts';

/** Says yes to everything, and remembers each request. */
async function squatter(t: TestContext, port: number): Promise<{ url: string; received: string[] }> {
  const received: string[] = [];
  const server = createServer((request, response) => {
    received.push(`${request.method} ${request.url}`);
    const text = JSON.stringify({ version: 9, min_version: 9, epoch: 1, token: 'x', subject: 'x' });
    request.resume().on('end', () => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': text.length }).end(text);
    });
  });
  await once(server.listen(port, '127.0.0.1'), 'listening');
  t.after(() => server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, received };
}

const REVOKE = ['cap', 'revoke', '--all'];
const OTHERS = [
  ['cap', 'revoke', 'alice'],
  ['cap', 'revoke', '--id', '2mJt0y8Sk3Vq5dQzLwH1xA'],
  ['cap', 'issue', '--scopes', 'storage:get'],
];
const ROOT = [
  ['cap', 'root'],
  ['cap', 'root', 'rotate'],
  ['cap', 'root', 'retire', '2'],
];

test('no command reports the success of a server to which it sent no capability', async (t) => {
  await inTemporaryDir(t);
  const { url } = await squatter(t, 0);
  for (const args of [REVOKE, ...OTHERS, ...ROOT]) {
    const { code, text, stderr } = await command([...args, '--url', url]);
    assert.deepEqual([code, text], [77, ''], args.join(' '));
    assert.match(stderr, /answered without a capability: it is not (kms|passport)/);
  }
});

test('a command for a stopped node calls no TCP port', async (t) => {
  await writeFile(join(await inTemporaryDir(t), 'private.txt'), 'private');
  const squatters = await Promise.all([7101, 7105, 7107].map((port) => squatter(t, port).catch(() => undefined)));
  for (const args of [REVOKE, ...OTHERS, ...ROOT, ['put', 'private.txt'], ['keys', 'list']]) {
    const { code, text, stderr } = await command(args);
    assert.deepEqual([code, text], [69, ''], args.join(' '));
    assert.match(stderr, /is not running at unix:.*\.sock: start it with `ron up --dir \/.*`/);
  }
  assert.deepEqual(
    squatters.flatMap((each) => each?.received ?? []),
    [],
  );
});
