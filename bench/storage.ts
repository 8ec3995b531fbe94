/**
 * Storage compared with nginx, which serves the same objects as files, and with a bare server that writes one file for each
 * object.
 *
 * The floor of answers from memory is a bare socket that writes the same bytes once. Reads are compared by CPU time of the
 * server per request, writes by rate and p99. Rounds alternate between the servers, so that noise of the machine affects
 * both; a figure is the median of the ratios, with their spread.
 * Reads need nginx (`apt-get install nginx-light`); without it, only writes are measured.
 */
import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { blake3 } from '@napi-rs/blake-hash';
import { atMost, compare, measureHash_us, RATIO_HEAD, spread, type Ratio } from './compare.ts';
import type { LoadReport } from './http-load.ts';
import { machineLine, median, quick, scratchDir, table } from './lib.ts';
import { LoadGenerator } from './load.ts';
import { hasNginx, startNginx } from './nginx.ts';
import { startPeer, startStorage, type Server, type Storage } from './servers.ts';

const KIB = 1024;
const MIB = KIB * KIB;
const dir = scratchDir('storage');
const load = new LoadGenerator();
const children: ChildProcess[] = [load.child];

function own<P extends { readonly child: ChildProcess }>(started: P): P {
  children.push(started.child);
  return started;
}

/** Starts storage with its data in the directory of this run. */
const storage = async (name: string, ...flags: string[]): Promise<Storage> =>
  own(await startStorage(join(dir, name), {}, ...flags));

const get = (address: string, headers = ''): string =>
  `GET /o/${address} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench/1\r\nAccept: */*\r\n${headers}\r\n`;

/** Stores the same bytes in every server and returns their address. */
async function store(bytes: Buffer, storages: readonly Storage[]): Promise<string> {
  const address = `b3:${blake3(bytes).toString('hex')}`;
  writeFileSync(join(dir, 'www', 'o', address), bytes);
  for (const { port, authorization } of storages) {
    const answer = await fetch(`http://127.0.0.1:${port}/o/${address}`, {
      method: 'PUT',
      body: bytes,
      headers: { authorization },
    });
    if (!answer.ok) throw new Error(`cannot store: ${answer.status} ${await answer.text()}`);
    await answer.body?.cancel();
  }
  return address;
}

const scale = quick ? 0.25 : 1;

/** Compares reads with nginx. */
async function readCases(hot: Storage): Promise<Ratio[]> {
  mkdirSync(join(dir, 'www', 'o'), { recursive: true });
  const [cold, nginx, bare] = [
    await storage('cold', '--storage.cache_bytes=1MiB'),
    own(await startNginx(join(dir, 'nginx'), `root ${dir}/www;`)),
    own(await startPeer('./bare-bytes-server.ts', join(dir, 'www'))),
  ];
  const one = async (bytes: number): Promise<string> => await store(randomBytes(bytes), [hot]);
  const many = async (bytes: number, count: number): Promise<string[]> => {
    const addresses: string[] = [];
    for (let index = 0; index < count; index++) addresses.push(await store(randomBytes(bytes), [cold]));
    return addresses;
  };
  const reads = (server: Server, requests: readonly string[], count: number) => (): Promise<number> =>
    load.cpuPerRequest_us(server, requests, count);
  const hotCase = async (name: string, bytes: number, count: number, bar: number): Promise<Ratio> => {
    const request = [get(await one(bytes))];
    const [ours, peer, floor] = [reads(hot, request, count), reads(nginx, request, count), reads(bare, request, count)];
    return { name, ...atMost(bar), ours, peer, floor };
  };
  const small = await one(KIB);
  const tagOf = async (port: number): Promise<string> =>
    (await fetch(`http://127.0.0.1:${port}/o/${small}`)).headers.get('etag')!;
  const notModified = async (server: Server): Promise<string[]> => [
    get(small, `If-None-Match: ${await tagOf(server.port)}\r\n`),
  ];
  const coldLarge = (await many(MIB, 64)).map((address) => get(address));
  const coldSmall = (await many(KIB, 4000)).map((address) => get(address));
  const hash_us = measureHash_us();
  return [
    await hotCase('hot GET 1 KiB', KIB, 40_000 * scale, 1.25),
    await hotCase('hot GET 64 KiB', 64 * KIB, 12_000 * scale, 1.2),
    await hotCase('hot GET 1 MiB', MIB, 1200 * scale, 1.15),
    {
      name: '304',
      ...atMost(1.6),
      ours: reads(hot, await notModified(hot), 40_000 * scale),
      peer: reads(nginx, await notModified(nginx), 40_000 * scale),
    },
    {
      name: 'cold GET 1 MiB, compared with nginx + 16 BLAKE3 calls',
      ...atMost(1.5),
      ours: reads(cold, coldLarge, 800 * scale),
      peer: async () => (await load.cpuPerRequest_us(nginx, coldLarge, 800 * scale)) + 16 * hash_us,
    },
    {
      name: 'cold GET 1 KiB',
      ...atMost(2.5),
      ours: reads(cold, coldSmall, 16_000 * scale),
      peer: reads(nginx, coldSmall, 16_000 * scale),
    },
  ];
}

/** Compares writes with a file for each object; collects the p99 of each round of storage in `p99s`. */
async function putCase(hot: Storage, p99s: number[]): Promise<Ratio> {
  const files = own(await startPeer('./file-per-object-server.ts', join(dir, 'files')));
  const puts = async (server: Server, authorization: string): Promise<LoadReport> => {
    const requests = Math.round(8000 * scale);
    return await load.run({ port: server.port, puts: { bytes: 4 * KIB, authorization }, connections: 64, requests });
  };
  return {
    name: 'durable PUT 4 KiB, 64 clients, compared with one file each',
    bar: '>= 4',
    met: (ratio) => ratio >= 4,
    unit: '/s',
    ours: async () => {
      const report = await puts(hot, hot.authorization);
      p99s.push(report.p99_ms);
      return report.requests / report.seconds;
    },
    peer: async () => {
      const report = await puts(files, '');
      return report.requests / report.seconds;
    },
  };
}

try {
  const hot = await storage('hot', '--storage.cache_bytes=256MiB');
  const isComparable = hasNginx();
  if (!isComparable) process.stdout.write('reads are skipped: nginx is not installed (apt-get install nginx-light)\n');
  const p99s: number[] = [];
  const lines = await compare([...(isComparable ? await readCases(hot) : []), await putCase(hot, p99s)]);
  const p99 = `PUT p99: median ${median(p99s).toFixed(1)} ms, ${spread(p99s)} ms (bar 10 ms)`;
  process.stdout.write(`\n${machineLine()}\n\n${table(RATIO_HEAD, lines)}\n\n${p99}\n`);
} finally {
  for (const child of children) child.kill();
  rmSync(dir, { recursive: true });
}
