/**
 * Storage compared with nginx, which serves the same objects as files, and with a bare server that writes one file for each
 * object.
 *
 * The floor of answers from memory is a bare socket that writes the same bytes once. Reads are compared by CPU time of the
 * server per request, writes by rate and p99. Rounds alternate between the servers, so that noise of the machine affects
 * both; a figure is the median of the ratios, with their spread.
 * Reads need nginx (`apt-get install nginx-light`); without it, only writes are measured.
 */
import { execFileSync, fork, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { blake3 } from '@napi-rs/blake-hash';
import type { LoadOrder, LoadReport } from './http-load.ts';
import { machineLine, median, quick, scratchDir, table } from './lib.ts';
import { cpu_us, firstLine, path, startStorage, type Server, type Storage } from './servers.ts';

const ROUNDS = quick ? 3 : 7;
/** Rounds that are discarded, until the code is optimized. */
const WARM_UPS = quick ? 4 : 2;
const KIB = 1024;
const MIB = KIB * KIB;
const dir = scratchDir('storage');
const children: ChildProcess[] = [];

/** Starts storage with its data in the directory of this run. */
async function storage(name: string, ...flags: string[]): Promise<Storage> {
  const started = await startStorage(join(dir, name), {}, ...flags);
  children.push(started.child);
  return started;
}

async function startNginx(): Promise<Server> {
  const port = await freePort();
  const home = join(dir, 'nginx');
  mkdirSync(home);
  writeFileSync(
    join(home, 'nginx.conf'),
    `user root; worker_processes 1; daemon off; pid ${home}/pid; error_log ${home}/error.log;
events { worker_connections 4096; }
http { access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_requests 1000000000;
  open_file_cache max=10000 inactive=60s; open_file_cache_valid 60s; default_type application/octet-stream;
  etag on; server { listen 127.0.0.1:${port}; root ${dir}/www; } }`,
  );
  const child = spawn('nginx', ['-c', join(home, 'nginx.conf'), '-p', home], { stdio: 'ignore' });
  children.push(child);
  for (let tries = 0; tries < 100; tries++) {
    try {
      const worker = execFileSync('pgrep', ['-P', String(child.pid)], { encoding: 'utf8' })
        .trim()
        .split('\n')[0];
      await fetch(`http://127.0.0.1:${port}/`).then((answer) => answer.body?.cancel());
      return { port, pid: Number(worker) };
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
  throw new Error('nginx does not answer');
}

async function startPeer(file: string, data: string): Promise<Server> {
  mkdirSync(data, { recursive: true });
  const child = spawn(process.execPath, [path(file), data], { stdio: ['ignore', 'pipe', 'ignore'] });
  children.push(child);
  return { port: Number(await firstLine(child)), pid: child.pid! };
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}

const load = fork(path('./http-load.ts')).setMaxListeners(0);
children.push(load);

async function run(order: LoadOrder): Promise<LoadReport> {
  const answered = once(load, 'message');
  const died = once(load, 'exit').then(() => Promise.reject(new Error('the load generator exited')));
  load.send(order);
  const [answer] = (await Promise.race([answered, died])) as [LoadReport & { error?: string }];
  if (answer.error !== undefined) throw new Error(answer.error);
  return answer;
}

async function cpuPerRequest_us(server: Server, request: LoadOrder['request'], requests: number): Promise<number> {
  const before = cpu_us(server.pid);
  await run({ port: server.port, request: request!, connections: 16, requests });
  return (cpu_us(server.pid) - before) / requests;
}

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

const spread = (values: readonly number[]): string =>
  `${Math.min(...values).toFixed(2)} .. ${Math.max(...values).toFixed(2)}`;

interface Ratio {
  readonly name: string;
  readonly bar: string;
  readonly met: (ratio: number) => boolean;
  readonly ours: () => Promise<number>;
  readonly peer: () => Promise<number>;
  /** The lower bound: a process that only copies the bytes from its memory. */
  readonly floor?: () => Promise<number>;
  readonly unit: string;
}

async function compare(cases: readonly Ratio[]): Promise<string[][]> {
  const lines: string[][] = [];
  for (const { name, bar, met, ours, peer, floor, unit } of cases) {
    const pairs: [number, number][] = [];
    const floors: number[] = [];
    for (let round = -WARM_UPS; round < ROUNDS; round++) {
      const pair: [number, number] = [await ours(), await peer()];
      const least = await floor?.();
      if (round < 0) continue;
      pairs.push(pair);
      if (least !== undefined) floors.push(least / pair[1]);
    }
    const ratios = pairs.map(([mine, theirs]) => mine / theirs);
    const figure = (values: number[]): string => `${median(values).toFixed(1)} ${unit}`;
    lines.push([
      name,
      figure(pairs.map(([mine]) => mine)),
      figure(pairs.map(([, theirs]) => theirs)),
      median(ratios).toFixed(2),
      spread(ratios),
      floors.length === 0 ? '' : median(floors).toFixed(2),
      bar,
      met(median(ratios)) ? 'pass' : 'FALLS SHORT',
    ]);
    process.stdout.write(`${lines.at(-1)!.join(' | ')}\n`);
  }
  return lines;
}

const scale = quick ? 0.25 : 1;

/** Compares reads with nginx. */
async function readCases(hot: Storage): Promise<Ratio[]> {
  mkdirSync(join(dir, 'www', 'o'), { recursive: true });
  const [cold, nginx, bare] = [
    await storage('cold', '--storage.cache_bytes=1MiB'),
    await startNginx(),
    await startPeer('./bare-bytes-server.ts', join(dir, 'www')),
  ];
  const one = async (bytes: number): Promise<string> => await store(randomBytes(bytes), [hot]);
  const many = async (bytes: number, count: number): Promise<string[]> => {
    const addresses: string[] = [];
    for (let index = 0; index < count; index++) addresses.push(await store(randomBytes(bytes), [cold]));
    return addresses;
  };
  const atMost = (bar: number) => ({ bar: `<= ${bar}`, met: (ratio: number) => ratio <= bar, unit: 'us' });
  const reads = (server: Server, requests: readonly string[], count: number) => (): Promise<number> =>
    cpuPerRequest_us(server, requests, count);
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
      peer: async () => (await cpuPerRequest_us(nginx, coldLarge, 800 * scale)) + 16 * hash_us,
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
  const files = await startPeer('./file-per-object-server.ts', join(dir, 'files'));
  const puts = async (server: Server, authorization: string): Promise<LoadReport> => {
    const requests = Math.round(8000 * scale);
    return await run({ port: server.port, puts: { bytes: 4 * KIB, authorization }, connections: 64, requests });
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
  const hasNginx = spawnSync('nginx', ['-v']).error === undefined;
  if (!hasNginx) process.stdout.write('reads are skipped: nginx is not installed (apt-get install nginx-light)\n');
  const p99s: number[] = [];
  const lines = await compare([...(hasNginx ? await readCases(hot) : []), await putCase(hot, p99s)]);
  const p99 = `PUT p99: median ${median(p99s).toFixed(1)} ms, ${spread(p99s)} ms (bar 10 ms)`;
  const head = ['measured', 'ron', 'peer', 'ratio', 'min .. max', 'floor', 'bar', 'verdict'];
  process.stdout.write(`\n${machineLine()}\n\n${table(head, lines)}\n\n${p99}\n`);
} finally {
  for (const child of children) child.kill();
  rmSync(dir, { recursive: true });
}

/** CPU time of one bare BLAKE3 call over a chunk. */
function measureHash_us(): number {
  const chunk = randomBytes(64 * KIB);
  const count = 5000;
  const before = process.cpuUsage();
  for (let index = 0; index < count; index++) blake3(chunk);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / count;
}
