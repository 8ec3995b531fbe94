/** Three nodes on loopback, joined by invitations: objects and names of one are read through the others. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile, stat, writeFile } from 'node:fs/promises';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { StorageClient } from '@ron/client';
import { reach } from '@ron/client/node';
import type { RonError } from '@ron/kernel/core';
import type { Address, DhtStatusDto, ProviderDto } from '@ron/proto';
import { assertSameBytes, bytesOf, eventually } from '@ron/testkit';
import { addressOf, metricIn, send } from '@ron/testkit/service';
import { isAlive } from '../src/home.ts';
import { ObjectReader } from '../src/net/object-reader.ts';
import { CleanUps, command, temporaryDir, up, type Up } from './support.ts';

/** Between two commands that are repeated: each leaves an idle connection behind. */
const POLL_MS = 200;
const TRICKLE_MS = 200;
/** Names need kms; the other two nodes do without. */
const SMALL = ['--only', 'storage,index'];

suite('three nodes', () => {
  const cleanUps = new CleanUps();
  let work: string;
  let invite: string;
  let [a, b, c]: Up[] = [];

  /** Runs a command for a node and returns its JSON. */
  const run = async (node: Up, ...args: string[]) => {
    const ended = await command([...args, '--json', '--dir', node.dir]);
    assert.equal(ended.code, 0, ended.stderr);
    return ended.text === '' ? undefined : (JSON.parse(ended.text) as never);
  };
  const statusOf = async (node: Up): Promise<DhtStatusDto> => (await run(node, 'net', 'status'))!;
  const metricOf = async (node: Up, series: string): Promise<number> =>
    metricIn((await send(node.services['index']!, 'GET', '/metrics')).text, series);
  const knows = (node: Up, count: number): Promise<void> =>
    eventually(`${node.dir} knows ${count} peers`, async () => (await metricOf(node, 'index_dht_peers')) >= count);

  const put = async (node: Up, bytes: Buffer): Promise<Address> => {
    const file = join(work, `put-${addressOf(bytes).slice(3, 19)}`);
    await writeFile(file, bytes);
    const { address } = (await run(node, 'put', file))! as { address: Address };
    return address;
  };

  /** Fetches an object until the node finds it: an announcement takes up to two seconds. */
  const fetched = async (node: Up, target: string): Promise<{ bytes: Buffer; from?: string[] }> => {
    const file = join(work, `got-${Math.floor(performance.now())}-${target.slice(-8).replace('/', '-')}`);
    let answer: { from?: string[] } | undefined;
    await eventually(`${target} is found`, async () => {
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      const ended = await command(['get', target, '-o', file, '--json', '--dir', node.dir]);
      if (ended.code === 0) answer = JSON.parse(ended.text) as { from?: string[] };
      else assert.match(ended.stderr, /not_found|no_route|timeout|not stored|unreachable/i);
      return ended.code === 0;
    });
    return { bytes: await readFile(file), ...answer };
  };

  before(async () => {
    work = await temporaryDir(cleanUps);
    invite = join(work, 'friends.invite');
    a = await up(cleanUps, join(work, 'a'));
    assert.equal((await statusOf(a)).mode, 'standalone');
    await run(a, 'net', 'invite', '-o', invite);
    b = await up(cleanUps, join(work, 'b'), [...SMALL, '--join', invite]);
    await knows(a, 1);
    c = await up(cleanUps, join(work, 'c'), [...SMALL, '--join', invite]);
    await Promise.all([a, b, c].map((node) => knows(node, 2)));
  });
  after(() => cleanUps.run());

  test('an invitation is a secret file with the addresses of the node', async () => {
    assert.equal((await stat(invite)).mode & 0o777, 0o600);
    const { addresses } = JSON.parse(await readFile(invite, 'utf8')) as { addresses: string[] };
    assert.deepEqual(addresses, (await statusOf(a!)).listening);
    assert.deepEqual(await run(a!, 'net', 'invite', '-o', '-'), JSON.parse(await readFile(invite, 'utf8')));
    const nowhere = await command(['net', 'invite', '-o', join(work, 'none', 'x'), '--dir', a!.dir]);
    assert.equal(nowhere.code, 73);
    assert.match(nowhere.stderr, /^ron: cannot write .*none\/x: its directory does not exist$/m);
    for (const node of [a!, b!, c!]) assert.equal((await stat(join(node.dir, 'net', 'key'))).mode & 0o777, 0o600);
  });

  test('an object of A is read through B, from A, and every byte is verified', async () => {
    const bytes = bytesOf(1_000_000, 1);
    const { bytes: got, from } = await fetched(b!, await put(a!, bytes));
    assertSameBytes(got, bytes);
    assert.deepEqual(from, [`${a!.services['storage']}/`]);
  });

  test('a name of A is resolved and read through B', async () => {
    const bytes = bytesOf(5000, 2);
    const file = join(work, 'page');
    await writeFile(file, bytes);
    await run(a!, 'put', file, '--name', 'site/page');
    const { key } = (await run(a!, 'name', 'get', 'site/page'))! as { key: string };
    assertSameBytes((await fetched(b!, `site/page@${key}`)).bytes, bytes);
  });

  test('objects of A are read through B while C is killed during the lookups', async () => {
    const all = Array.from({ length: 4 }, (_, at) => bytesOf(20_000, 10 + at));
    const addresses = await Promise.all(all.map((bytes) => put(a!, bytes)));
    // C holds its connections but answers nothing.
    process.kill(c!.pids['index']!, 'SIGSTOP');
    const fetching = Promise.all(addresses.map((address) => fetched(b!, address)));
    const waiting = 'queue_depth{queue="/providers"}';
    await eventually('lookups of B wait for C', async () => (await metricOf(b!, waiting)) > 0);
    c!.process.kill('SIGKILL');
    process.kill(c!.pids['index']!, 'SIGKILL');
    for (const [at, { bytes }] of (await fetching).entries()) assertSameBytes(bytes, all[at]!);
  });

  test('C is restarted: it is still a member, reads from A, and its new objects are found', async () => {
    await eventually('the processes of C are gone', () => Object.values(c!.pids).every((pid) => !isAlive(pid)));
    c = await up(cleanUps, c!.dir, SMALL);
    await knows(c, 1);
    const bytes = bytesOf(300_000, 20);
    const [ofA, ofC] = await Promise.all([put(a!, bytes), put(c, bytesOf(100, 21))]);
    assertSameBytes((await fetched(c, ofA)).bytes, bytes);
    assertSameBytes((await fetched(b!, ofC)).bytes, bytesOf(100, 21));
  });

  test('a reader leaves a provider that lies, stalls or breaks off, and goes on at the first missing byte', async () => {
    const bytes = bytesOf(400_000, 30);
    const address = await put(a!, bytes);
    const honest = a!.services['storage']!;
    const cut = await provider(cleanUps, async (request, response) => {
      const answer = await fetch(new URL(request.url!, honest));
      response.writeHead(answer.status, Object.fromEntries(answer.headers));
      response.write(Buffer.from(await answer.arrayBuffer()).subarray(0, 200_000), () => response.destroy());
    });
    const liar = await provider(cleanUps, async (request, response) => {
      const answer = await fetch(new URL(request.url!, honest));
      const body = Buffer.from(await answer.arrayBuffer());
      body[body.length - 1]! ^= 1;
      response.writeHead(answer.status, Object.fromEntries(answer.headers)).end(body);
    });
    const missing = b!.services['storage']!;
    const failures: string[] = [];
    const reader = new ObjectReader({
      own: new StorageClient(reach(missing)),
      providers: () => Promise.resolve([cut, missing, liar, honest].map(providerAt)),
      onFailure: (url) => failures.push(url),
    });
    const pieces: Uint8Array[] = [];
    for await (const piece of reader.get(address, {})) pieces.push(piece);
    assertSameBytes(Buffer.concat(pieces), bytes);
    assert.deepEqual(
      failures,
      [cut, missing, liar].map((url) => `${url}/`),
    );
    assert.equal(reader.from.at(-1), `${honest}/`);
  });

  test('a reader leaves a provider that trickles while another one is left', async () => {
    const bytes = bytesOf(400_000, 31);
    const address = await put(a!, bytes);
    const honest = a!.services['storage']!;
    const trickle = await provider(cleanUps, async (request, response) => {
      const answer = await fetch(new URL(request.url!, honest));
      const body = Buffer.from(await answer.arrayBuffer());
      response.writeHead(answer.status, Object.fromEntries(answer.headers));
      for (let at = 0; at < body.length && !response.destroyed; at++) {
        response.write(body.subarray(at, at + 1));
        await new Promise((resolve) => setTimeout(resolve, TRICKLE_MS));
      }
    });
    const failures: string[] = [];
    const reader = new ObjectReader({
      own: new StorageClient(reach(b!.services['storage']!)),
      providers: () => Promise.resolve([trickle, honest].map(providerAt)),
      onFailure: (url, why) => failures.push(`${url} ${why}`),
      stall_ms: 10 * TRICKLE_MS,
    });
    const pieces = await Array.fromAsync(reader.get(address, { signal: AbortSignal.timeout(30_000) }));
    assertSameBytes(Buffer.concat(pieces), bytes);
    assert.deepEqual(failures, [`${trickle}/ no progress for ${10 * TRICKLE_MS} ms`]);
  });

  test('an object of which providers deliver no byte is not found, and the error states why', async () => {
    const liar = await provider(cleanUps, async (_, response) => {
      response.writeHead(200, { 'content-type': 'text/html' }).end('<html></html>');
    });
    const redirect = await provider(cleanUps, async (_, response) => {
      response.writeHead(302, { location: `${liar}/secret` }).end();
    });
    const reader = new ObjectReader({
      own: new StorageClient(reach(b!.services['storage']!)),
      providers: () => Promise.resolve([liar, redirect].map(providerAt)),
      onFailure: () => undefined,
    });
    await assert.rejects(Array.fromAsync(reader.get(addressOf(bytesOf(10, 98)) as Address, {})), (error: RonError) => {
      assert.equal(error.code, 'not_found');
      assert.match(error.message, /is not stored/);
      for (const url of [liar, redirect]) assert.ok(error.message.includes(`${url}/: `), error.message);
      return true;
    });
  });

  test('an object that no node has is not found', async () => {
    const ended = await command(['get', addressOf(bytesOf(10, 99)), '-o', join(work, 'none'), '--dir', b!.dir]);
    assert.notEqual(ended.code, 0);
    assert.match(ended.stderr, /is not stored/);
  });
});

const providerAt = (url: string): ProviderDto => ({ id: url, url, proof: 'unproven', age_s: 0, latency_ms: null });

type Handler = (...given: Parameters<RequestListener>) => Promise<void>;

/** A server on a free port. */
async function provider(t: CleanUps, listener: Handler): Promise<string> {
  const server: Server = createServer((request, response) => void listener(request, response)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
