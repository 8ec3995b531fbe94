/** Interrupted transfers resume where they stopped, after the data of the first attempt is verified. */
import assert from 'node:assert/strict';
import { readFile, stat, writeFile } from 'node:fs/promises';
import { createServer, request as httpRequest, type Server } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { assertSameBytes, bytesOf, eventually, unusedUrl } from '@ron/testkit';
import { CleanUps, Process, ron, temporaryDir, up, type Up } from './support.ts';

const MIB = 1024 * 1024;
const GROUP = 65_536;

suite('resume', () => {
  const cleanUps = new CleanUps();
  let dir: string;
  let node: Up;

  before(async () => {
    dir = await temporaryDir(cleanUps);
    node = await up(cleanUps, join(dir, 'node'));
  });
  after(() => cleanUps.run());

  /** A proxy for storage that forwards `bytes_max` of each answer and then stalls. */
  async function stallingProxy(bytes_max: () => number): Promise<{ url: string; requests: string[]; server: Server }> {
    const requests: string[] = [];
    const server = createServer((request, response) => {
      requests.push(request.url!);
      const upstream = httpRequest(
        `${node.services['storage']}${request.url}`,
        { headers: request.headers },
        (answer) => {
          response.writeHead(answer.statusCode!, answer.headers);
          let left = bytes_max();
          answer.on('data', (chunk: Buffer) => {
            if (left > 0) response.write(chunk.subarray(0, left));
            left -= chunk.length;
          });
          answer.on('end', () => left >= 0 && response.end());
        },
      );
      upstream.on('error', () => undefined);
      upstream.end();
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    cleanUps.after(() => {
      server.close();
      server.closeAllConnections();
    });
    return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests, server };
  }

  async function stored(name: string, size: number, seed: number): Promise<{ content: Buffer; address: string }> {
    const content = bytesOf(size, seed);
    await writeFile(join(dir, name), content);
    const put = await ron(cleanUps, ['put', name, '--dir', node.dir], { cwd: dir });
    return { content, address: put.text.trim() };
  }

  test('an interrupted get keeps its verified bytes, and the next one fetches only the rest', async () => {
    const { content, address } = await stored('big', 3 * MIB + 5, 3);
    let allowed = 2 * MIB + 1000;
    const proxy = await stallingProxy(() => allowed);
    const get = new Process(cleanUps, ['get', address, '-o', 'copy', '--url', proxy.url], { cwd: dir });
    const path = join(dir, 'copy.part');
    const sizeOf = (): Promise<number> =>
      stat(path).then(
        ({ size }) => size,
        () => 0,
      );
    await eventually('the part file grows', async () => (await sizeOf()) >= MIB);
    get.kill('SIGINT');
    const ended = await get.ended;
    assert.equal(ended.code, 130);
    // The number of bytes depends on the speed of the machine; all verified bytes are written and reported.
    const kept = await sizeOf();
    assert.ok(kept >= MIB && kept <= 31 * GROUP && kept % GROUP === 0, `${kept} bytes are kept`);
    const size_text = `${(kept / MIB).toFixed(1)} MiB`;
    const interrupted = `ron: interrupted: ${size_text} saved in copy.part; run the same command again to resume\n`;
    assert.ok(ended.stderr.endsWith(interrupted), ended.stderr);
    await assert.rejects(stat(join(dir, 'copy')), { code: 'ENOENT' });

    allowed = Infinity;
    proxy.requests.length = 0;
    const again = await ron(cleanUps, ['get', address, '-o', 'copy', '--url', proxy.url], { cwd: dir });
    assert.equal(again.code, 0, again.stderr);
    assert.ok(again.stderr.startsWith(`resuming after ${size_text}\n`), again.stderr);
    assertSameBytes(await readFile(join(dir, 'copy')), content);
    const offsets = proxy.requests.map((url) => Number(new URL(url, 'http://x').searchParams.get('offset')));
    assert.ok(
      offsets.every((offset) => offset >= kept),
      `offsets ${offsets.join(', ')}`,
    );
  });

  test('a damaged part file is truncated before the damage, and the result is correct', async () => {
    const { content, address } = await stored('damaged', 10 * GROUP + 5, 4);
    const part = Buffer.from(content.subarray(0, 6 * GROUP));
    part[4 * GROUP + 9]! ^= 1;
    await writeFile(join(dir, 'mended.part'), part);
    const get = await ron(cleanUps, ['get', address, '-o', 'mended', '--dir', node.dir], { cwd: dir });
    assert.match(get.stderr, /^resuming after 256 KiB\n/);
    assertSameBytes(await readFile(join(dir, 'mended')), content);
  });

  test('a part file of another object is not used, and is kept while the service is down', async () => {
    const { content, address } = await stored('other', 4 * GROUP, 5);
    await writeFile(join(dir, 'fresh.part'), bytesOf(3 * GROUP, 99));
    const stopped = await ron(cleanUps, ['get', address, '-o', 'fresh', '--url', await unusedUrl()], { cwd: dir });
    assert.equal(stopped.code, 69);
    assert.equal((await stat(join(dir, 'fresh.part'))).size, 3 * GROUP);
    const get = await ron(cleanUps, ['get', address, '-o', 'fresh', '--dir', node.dir], { cwd: dir });
    assert.doesNotMatch(get.stderr, /resuming/);
    assertSameBytes(await readFile(join(dir, 'fresh')), content);
  });

  test('a killed put resumes where it stopped', async (t) => {
    const content = bytesOf(30 * MIB, 7);
    await writeFile(join(dir, 'upload'), content);
    // An upload server that stops reading after 8 MiB, and continues later.
    const received: Buffer[] = [];
    let silent = true;
    const methods: string[] = [];
    const { blake3 } = await import('@napi-rs/blake-hash');
    const size = (): number => received.reduce((sum, piece) => sum + piece.length, 0);
    const server = createServer((request, response) => {
      methods.push(request.method!);
      const headers = (): Record<string, string> => ({
        'Tus-Resumable': '1.0.0',
        'Upload-Offset': String(size()),
        'Upload-Length': String(content.length),
        ...(size() === content.length && { 'Ron-Address': `b3:${blake3(Buffer.concat(received)).toString('hex')}` }),
      });
      if (request.method === 'POST') return response.writeHead(201, { Location: '/uploads/7' }).end();
      if (request.method === 'HEAD') return response.writeHead(200, headers()).end();
      request.on('data', (chunk: Buffer) => {
        const left = silent ? 8 * MIB - size() : chunk.length;
        received.push(chunk.subarray(0, left));
        if (size() === 8 * MIB && silent) request.pause();
      });
      return request.on('end', () => response.writeHead(204, headers()).end());
    }).listen(join(dir, 'upload.sock'));
    await once(server, 'listening');
    t.after(() => {
      server.close();
      server.closeAllConnections();
    });
    const url = `unix:${join(dir, 'upload.sock')}`;
    const args = [
      'put',
      'upload',
      '--url',
      url,
      '--state',
      join(dir, 'state'),
      '--capability-file',
      node.capability_file,
    ];
    const first = new Process(cleanUps, args, { cwd: dir });
    await eventually('the first 8 MiB have arrived', () => size() === 8 * MIB);
    first.kill('SIGKILL');
    assert.equal((await first.ended).signal, 'SIGKILL');

    silent = false;
    methods.length = 0;
    const second = await ron(cleanUps, args, { cwd: dir });
    assert.equal(second.code, 0, second.stderr);
    assert.match(second.stderr, /^resuming after 8\.0 MiB\n/);
    assert.equal(second.text, `b3:${blake3(content).toString('hex')}\n`);
    assert.deepEqual(methods, ['HEAD', 'PATCH']);
    methods.length = 0;
    await ron(cleanUps, args, { cwd: dir });
    assert.equal(methods[0], 'POST', 'the URL of a finished upload is removed');
  });
});
