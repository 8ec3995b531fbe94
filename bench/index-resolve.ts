/**
 * Cached answers of index compared with a program on bare `node:http` that sends the same bytes.
 *
 * The figure is the CPU time of the server per request; rounds alternate between the servers, so that noise of the machine
 * affects both. The bar is the median of the ratios.
 */
import { fork, spawn, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { FileKeySource, mint } from '@ron/auth';
import type { LoadOrder, LoadReport } from './http-load.ts';
import { machineLine, median, quick, scratchDir, table } from './lib.ts';
import { cpu_us, firstLine, path, type Server } from './servers.ts';

const ROUNDS = quick ? 3 : 7;
/** Rounds that are discarded, until the code is optimized. */
const WARM_UPS = quick ? 2 : 3;
const REQUESTS = quick ? 20_000 : 80_000;
const BAR = 0.8;
const dir = scratchDir('index-resolve');
const children: ChildProcess[] = [];

async function startIndex(): Promise<Server & { authorization: string }> {
  const data = join(dir, 'data');
  const { signal } = new AbortController();
  const keys = await FileKeySource.open({ path: join(data, 'keys') }, signal);
  const { token } = await mint(keys, { audience: 'index', scopes: ['index:announce'], ttl_ms: 3_600_000 }, signal);
  const flags = [
    '--server.bind=127.0.0.1:0',
    `--data_dir=${data}`,
    '--index.storage_url=http://127.0.0.1:7101',
    // One answer for the whole run.
    '--cache.ttl_s=3600',
  ];
  const main = path('../services/index/src/main.ts');
  const child = spawn(process.execPath, [...process.execArgv, main, ...flags], { stdio: ['ignore', 'pipe', 'ignore'] });
  children.push(child);
  const { url } = JSON.parse(await firstLine(child)) as { url: string };
  return { port: Number(new URL(url).port), pid: child.pid!, authorization: `Bearer ${token}` };
}

async function startBare(body: string): Promise<Server> {
  const file = join(dir, 'body');
  writeFileSync(file, body);
  const child = spawn(process.execPath, [path('./bare-http-server.ts'), file], { stdio: ['ignore', 'pipe', 'ignore'] });
  children.push(child);
  return { port: Number(await firstLine(child)), pid: child.pid! };
}

/** Announces an object and returns the path of its cached answer, with the body. */
async function announce({ port, authorization }: Awaited<ReturnType<typeof startIndex>>): Promise<[string, string]> {
  const address = `b3:${createHash('sha256').update('object').digest('hex')}`;
  const target = `/resolve/${address}`;
  const url = `http://127.0.0.1:${port}`;
  const announced = await fetch(`${url}/announce`, {
    method: 'POST',
    headers: { authorization, 'content-type': 'application/json' },
    body: JSON.stringify({ entries: [{ address, size: 5, media_type: 'text/plain' }] }),
  });
  if (!announced.ok) throw new Error(`cannot announce: ${announced.status} ${await announced.text()}`);
  for (let tries = 0; tries < 100; tries += 1) {
    const body = await (await fetch(`${url}${target}`)).text();
    if (body.includes('"source":"cache"')) return [target, body];
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error('the answer is not cached');
}

const load = fork(path('./http-load.ts')).setMaxListeners(0);
children.push(load);

async function cpuPerRequest_us(server: Server, target: string): Promise<number> {
  const request = `GET ${target} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench/1\r\nAccept: */*\r\n\r\n`;
  const before = cpu_us(server.pid);
  const answered = once(load, 'message');
  load.send({ port: server.port, request, connections: 16, requests: REQUESTS } satisfies LoadOrder);
  const [answer] = (await answered) as [LoadReport & { error?: string }];
  if (answer.error !== undefined) throw new Error(answer.error);
  return (cpu_us(server.pid) - before) / REQUESTS;
}

try {
  const index = await startIndex();
  const [target, body] = await announce(index);
  const bare = await startBare(body);
  const pairs: [number, number][] = [];
  for (let round = -WARM_UPS; round < ROUNDS; round += 1) {
    const pair: [number, number] = [await cpuPerRequest_us(index, target), await cpuPerRequest_us(bare, target)];
    if (round >= 0) pairs.push(pair);
  }
  const ratios = pairs.map(([ours, theirs]) => ours / theirs);
  const ratio = median(ratios);
  const spread = `${Math.min(...ratios).toFixed(2)} .. ${Math.max(...ratios).toFixed(2)}`;
  const us = (values: number[]): string => `${median(values).toFixed(1)} us`;
  process.stdout.write(`${machineLine()}\n\n`);
  process.stdout.write(
    `${table(
      ['cached resolve, CPU per request', 'index', 'bare node:http', 'ratio', 'spread', 'bar', ''],
      [
        [
          `${body.length} bytes`,
          us(pairs.map(([ours]) => ours)),
          us(pairs.map(([, theirs]) => theirs)),
          ratio.toFixed(2),
          spread,
          `<= ${BAR}`,
          ratio <= BAR ? 'pass' : 'FALLS SHORT',
        ],
      ],
    )}\n`,
  );
  if (ratio > BAR) process.exitCode = 1;
} finally {
  for (const child of children) child.kill();
  rmSync(dir, { recursive: true, force: true });
}
