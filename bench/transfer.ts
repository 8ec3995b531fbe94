/**
 * `ron put` and `ron get` of a large file, compared with `cp`, `sync` and a hash of the same file.
 *
 * Every round uses new bytes and measures the peer first. The fetched file is compared with the original. CPU time is that
 * of client and server, which varies less than wall-clock time. The private memory of the server is sampled: the result is
 * its largest growth since before the first round. `--quick` transfers 256 MiB instead of 1 GiB.
 */
import { execFileSync, spawn } from 'node:child_process';
import { randomFillSync } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { machineLine, median, quick, scratchDir, table } from './lib.ts';
import { cpu_us, firstLine, ownMemory_bytes, path, startStorage } from './servers.ts';

const MIB = 1024 * 1024;
const BYTES = (quick ? 256 : 1024) * MIB;
const ROUNDS = 3;
const SAMPLE_MS = 20;
const GROWTH_MIB_MAX = 64;
const RATIO_MAX = 1.5;

const dir = scratchDir('transfer');
const file = (name: string): string => join(dir, name);

interface Move {
  readonly seconds: number;
  readonly ratio: number;
  readonly client_cpu_s: number;
  readonly server_cpu_s: number;
}

function writeRandom(name: string): void {
  const fd = openSync(file(name), 'w');
  const piece = Buffer.allocUnsafe(8 * MIB);
  for (let at = 0; at < BYTES; at += piece.length) writeSync(fd, randomFillSync(piece));
  closeSync(fd);
  execFileSync('sync', [file(name)]);
}

const HASH = `import { blake3 } from '@napi-rs/blake-hash';
import { openSync, readSync } from 'node:fs';
const fd = openSync(process.argv[1], 'r');
const chunk = Buffer.allocUnsafe(65536);
while (readSync(fd, chunk) > 0) blake3(chunk);`;

function copySyncHash_s(): number {
  const start = performance.now();
  execFileSync('cp', [file('in'), file('copy')]);
  execFileSync('sync', [file('copy')]);
  execFileSync(process.execPath, ['--input-type=module', '-e', HASH, file('copy')], { cwd: path('..') });
  const seconds = (performance.now() - start) / 1000;
  rmSync(file('copy'));
  return seconds;
}

const server = await startStorage(file('data'), {});
const memory_bytes = ownMemory_bytes(server.pid);
let growth_bytes = 0;

/** Runs the command; returns its first line of output and its cost. */
async function ron(peer_s: number, ...args: string[]): Promise<Move & { output: string }> {
  const connection = ['--url', `http://127.0.0.1:${server.port}`, '--capability-file', file('cap'), '--dir', dir];
  const command = [...process.execArgv, path('../apps/ron/src/main.ts'), ...args, ...connection];
  const server_us = cpu_us(server.pid);
  const start = performance.now();
  const child = spawn(process.execPath, command, { stdio: ['ignore', 'pipe', 'ignore'] });
  let client_us = 0;
  const sampler = setInterval(() => {
    growth_bytes = Math.max(growth_bytes, ownMemory_bytes(server.pid) - memory_bytes);
    try {
      client_us = cpu_us(child.pid!);
    } catch {
      // The process has just exited.
    }
  }, SAMPLE_MS);
  const ended = once(child, 'exit');
  const output = args[0] === 'put' ? await firstLine(child) : '';
  const [code] = (await ended) as [number];
  clearInterval(sampler);
  if (code !== 0) throw new Error(`ron ${args[0]} exited with ${code}`);
  const seconds = (performance.now() - start) / 1000;
  const server_cpu_s = (cpu_us(server.pid) - server_us) / 1e6;
  return { seconds, ratio: seconds / peer_s, client_cpu_s: client_us / 1e6, server_cpu_s, output };
}

function line(name: string, moves: readonly Move[]): string[] {
  const all = (key: keyof Move): number[] => moves.map((move) => move[key]);
  const figure = (key: keyof Move): string => median(all(key)).toFixed(2);
  const spread = `${Math.min(...all('seconds')).toFixed(2)} .. ${Math.max(...all('seconds')).toFixed(2)}`;
  const verdict = median(all('ratio')) <= RATIO_MAX ? 'pass' : 'FALLS SHORT';
  return [name, figure('seconds'), spread, figure('ratio'), figure('client_cpu_s'), figure('server_cpu_s'), verdict];
}

const puts: Move[] = [];
const gets: Move[] = [];
const peers_s: number[] = [];
try {
  writeFileSync(file('cap'), server.token, { mode: 0o600 });
  for (let round = 0; round < ROUNDS; round++) {
    writeRandom('in');
    const peer_s = copySyncHash_s();
    const put = await ron(peer_s, 'put', file('in'), '--state', file('state'));
    const get = await ron(peer_s, 'get', put.output, '-o', file('out'));
    execFileSync('cmp', [file('in'), file('out')]);
    puts.push(put);
    gets.push(get);
    peers_s.push(peer_s);
    rmSync(file('out'));
  }
} finally {
  const ended = once(server.child, 'exit');
  server.child.kill();
  await ended;
  rmSync(dir, { recursive: true });
}
const head = ['measured', 's', 'min .. max', `ratio (<= ${RATIO_MAX})`, 'CPU client', 'CPU server', 'verdict'];
const growth_mib = growth_bytes / MIB;
process.stdout.write(
  `\n${machineLine()}\n\n${BYTES / MIB} MiB; cp, sync and hash take ${median(peers_s).toFixed(2)} s\n\n` +
    `${table(head, [line('put', puts), line('get', gets)])}\n\n` +
    `Own memory of the server: +${growth_mib.toFixed(0)} MiB (bar ${GROWTH_MIB_MAX}): ` +
    `${growth_mib <= GROWTH_MIB_MAX ? 'pass' : 'FALLS SHORT'}\n`,
);
