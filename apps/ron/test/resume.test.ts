/** Interrupted transfers go on where they stopped, and what was kept is checked first. */
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

  /** Storage behind a wire that lets `bytes_max` of each answer through and then goes silent. */
  async function slowWire(bytes_max: () => number): Promise<{ url: string; asked: string[]; server: Server }> {
    const asked: string[] = [];
    const server = createServer((request, response) => {
      asked.push(request.url!);
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
    return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked, server };
  }

  async function stored(name: string, size: number, seed: number): Promise<{ content: Buffer; address: string }> {
    const content = bytesOf(size, seed);
    await writeFile(join(dir, name), content);
    const put = await ron(cleanUps, ['put', name, '--dir', node.dir], { cwd: dir });
    return { content, address: put.text.trim() };
  }

  test('a get that is interrupted keeps what it has, and the next one fetches only the rest', async () => {
    const { content, address } = await stored('big', 3 * MIB + 5, 3);
    let allowed = 2 * MIB + 1000;
    const wire = await slowWire(() => allowed);
    const get = new Process(cleanUps, ['get', address, '-o', 'copy', '--url', wire.url], { cwd: dir });
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
    // How much of what came through had arrived by then is the machine's affair; what was proven was written, and is told.
    const kept = await sizeOf();
    assert.ok(kept >= MIB && kept <= 31 * GROUP && kept % GROUP === 0, `${kept} bytes are kept`);
    const said = `${(kept / MIB).toFixed(1)} MiB`;
    const interrupted = `ron: interrupted: ${said} are in copy.part; the same command goes on from there\n`;
    assert.ok(ended.stderr.endsWith(interrupted), ended.stderr);
    await assert.rejects(stat(join(dir, 'copy')), { code: 'ENOENT' });

    allowed = Infinity;
    wire.asked.length = 0;
    const again = await ron(cleanUps, ['get', address, '-o', 'copy', '--url', wire.url], { cwd: dir });
    assert.equal(again.code, 0, again.stderr);
    assert.ok(again.stderr.startsWith(`resuming after ${said}\n`), again.stderr);
    assertSameBytes(await readFile(join(dir, 'copy')), content);
    const offsets = wire.asked.map((url) => Number(new URL(url, 'http://x').searchParams.get('offset')));
    assert.ok(
      offsets.every((offset) => offset >= kept),
      `asked from ${offsets.join(', ')}`,
    );
  });

  test('a part file with a wrong byte is cut before it, and the result is right', async () => {
    const { content, address } = await stored('damaged', 10 * GROUP + 5, 4);
    const part = Buffer.from(content.subarray(0, 6 * GROUP));
    part[4 * GROUP + 9]! ^= 1;
    await writeFile(join(dir, 'mended.part'), part);
    const get = await ron(cleanUps, ['get', address, '-o', 'mended', '--dir', node.dir], { cwd: dir });
    assert.match(get.stderr, /^resuming after 256 KiB\n/);
    assertSameBytes(await readFile(join(dir, 'mended')), content);
  });

  test('a part file of something else altogether is not used, and not lost while the service is away', async () => {
    const { content, address } = await stored('other', 4 * GROUP, 5);
    await writeFile(join(dir, 'fresh.part'), bytesOf(3 * GROUP, 99));
    const away = await ron(cleanUps, ['get', address, '-o', 'fresh', '--url', await unusedUrl()], { cwd: dir });
    assert.equal(away.code, 69);
    assert.equal((await stat(join(dir, 'fresh.part'))).size, 3 * GROUP);
    const get = await ron(cleanUps, ['get', address, '-o', 'fresh', '--dir', node.dir], { cwd: dir });
    assert.doesNotMatch(get.stderr, /resuming/);
    assertSameBytes(await readFile(join(dir, 'fresh')), content);
  });

  test('a put that is killed half-way goes on where it stopped', async (t) => {
    const content = bytesOf(30 * MIB, 7);
    await writeFile(join(dir, 'upload'), content);
    // A server of uploads that keeps what comes, stops reading after 8 MiB, and later goes on.
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
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    t.after(() => {
      server.close();
      server.closeAllConnections();
    });
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
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
    await eventually('a part has arrived', () => size() === 8 * MIB);
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
    assert.equal(methods[0], 'POST', 'a finished upload is forgotten');
  });
});
