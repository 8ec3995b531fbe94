/**
 * Edge compared with nginx: tiles as files, and `proxy_cache` beside cached fills. Fills are compared with a bare process that
 * fetches, hashes and appends.
 *
 * Figures are CPU time of the server per request, with all its threads. Rounds alternate between the servers; a figure is
 * the median of the ratios, with their spread. Needs nginx (`apt-get install nginx`). `--only=TEXT` measures the cases whose
 * name contains the text; with `node --cpu-prof`, each server writes its profile.
 */
import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { makePmtiles } from '../services/edge/test/packs/make-pmtiles.ts';
import { atMost, compare, measureHash_us, RATIO_HEAD, spread, type Ratio } from './compare.ts';
import {
  live,
  request,
  startBareFill,
  startEdge,
  startOrigin,
  startTileNginx,
  urlOf,
  writeTiles,
  type Origin,
} from './edge-peers.ts';
import { callChild, machineLine, median, quick, scratchDir, table } from './lib.ts';
import { LoadGenerator } from './load.ts';
import { hasNginx } from './nginx.ts';
import { cpu_us, path, startPeer, type Server } from './servers.ts';

const KIB = 1024;
const scale = quick ? 0.25 : 1;
const TILE_BYTES = 10 * KIB;
/** 4^6 tiles of 10 KiB: forty times the memory of the edge that reads them from its pack. */
const ZOOM = 6;
const dir = scratchDir('edge');
const load = new LoadGenerator();
const children: ChildProcess[] = [load.child];

function own<P extends { readonly child: ChildProcess }>(started: P): P {
  children.push(started.child);
  return started;
}

const side = 2 ** ZOOM;
const tiles = Array.from({ length: side * side }, (_, index) => {
  const [x, y] = [index % side, Math.floor(index / side)];
  return { z: ZOOM, x, y, bytes: randomBytes(TILE_BYTES) };
});
const assetOf = ({ z, x, y }: { z: number; x: number; y: number }): string => `pack/bench/${z}/${x}/${y}.png`;

const only = process.argv.find((argument) => argument.startsWith('--only='))?.slice('--only='.length) ?? '';
const isWanted = (name: string): boolean => name.includes(only);

let fill_number = 0;
/** Requests for assets that no server has seen. */
const newFills = (prefix: string, count: number): string[] =>
  Array.from({ length: count }, () => request(`${prefix}t/${(fill_number += 1)}.png`));

async function tagOf(server: Server, asset: string): Promise<string> {
  const answer = await fetch(urlOf(server, asset));
  await answer.arrayBuffer();
  if (!answer.ok) throw new Error(`${asset}: ${answer.status}`);
  return answer.headers.get('etag')!;
}

async function ratios(origin: Origin): Promise<Ratio[]> {
  const www = join(dir, 'www');
  writeTiles(tiles, join(dir, 'hot'), www);
  writeTiles(tiles, join(dir, 'cold'), www);
  const hot = own(await startEdge(join(dir, 'hot'), {}, ...live(origin)));
  const cold = own(await startEdge(join(dir, 'cold'), {}, '--cache.ram_bytes=1MiB'));
  await untilReady(hot);
  await untilReady(cold);
  const nginx = own(await startTileNginx(join(dir, 'nginx'), www, origin));
  const floor = own(await startPeer('./bare-bytes-server.ts', www));
  const bare = own(await startBareFill(join(dir, 'bare'), origin));
  const cpu = (server: Server, requests: readonly string[], count: number) => (): Promise<number> =>
    load.cpuPerRequest_us(server, requests, Math.round(count * scale));
  const hotTile = assetOf(tiles[77]!);
  const fetched = `live/${origin.host}/hot.png`;
  const notModified = async (server: Server): Promise<string[]> => [
    request(hotTile, `If-None-Match: ${await tagOf(server, hotTile)}\r\n`),
  ];
  for (const server of [hot, nginx]) for (let times = 0; times < 3; times++) await tagOf(server, fetched);
  const all = tiles.map((tile) => request(assetOf(tile)));
  const hash_us = measureHash_us();
  const fills = Math.round(2000 * scale);
  return [
    {
      name: 'hot tile, 10 KiB',
      ...atMost(1.35),
      ours: cpu(hot, [request(hotTile)], 40_000),
      peer: cpu(nginx, [request(hotTile)], 40_000),
      floor: cpu(floor, [request(hotTile)], 40_000),
    },
    {
      name: '304',
      ...atMost(1.25),
      ours: cpu(hot, await notModified(hot), 40_000),
      peer: cpu(nginx, await notModified(nginx), 40_000),
      floor: cpu(floor, await notModified(nginx), 40_000),
    },
    {
      name: 'cached fill, compared with proxy_cache',
      ...atMost(1.35),
      ours: cpu(hot, [request(fetched)], 40_000),
      peer: cpu(nginx, [request(fetched)], 40_000),
    },
    {
      name: 'PMTiles tile not in RAM, compared with nginx + one BLAKE3 of 64 KiB',
      ...atMost(2),
      ours: cpu(cold, all, 16_000),
      peer: async () => (await cpu(nginx, all, 16_000)()) + hash_us,
    },
    {
      name: 'fill of 10 KiB, compared with node:https + BLAKE3 + one append',
      ...atMost(2),
      ours: () => load.cpuPerRequest_us(hot, newFills(`live/${origin.host}/`, fills), fills),
      peer: () => load.cpuPerRequest_us(bare, newFills('', fills), fills),
    },
  ];
}

/** p95 of hits by 50 clients while 16 other clients cause fills. */
async function hitsBesideFills(origin: Origin): Promise<string> {
  const data = join(dir, 'beside');
  writeTiles(tiles.slice(0, 64), data, join(dir, 'www'));
  const edge = own(await startEdge(data, {}, ...live(origin)));
  await untilReady(edge);
  const filler = new LoadGenerator();
  children.push(filler.child);
  const hits = tiles.slice(0, 64).map((tile) => request(assetOf(tile)));
  const p95s: number[] = [];
  for (let round = -1; round < (quick ? 3 : 7); round++) {
    const fills = Math.round(3000 * scale);
    const filling = filler.run({
      port: edge.port,
      request: newFills(`live/${origin.host}/`, fills),
      connections: 16,
      requests: fills,
    });
    const { p95_ms } = await load.run({ port: edge.port, request: hits, connections: 50, requests: 20_000 * scale });
    await filling;
    if (round >= 0) p95s.push(p95_ms);
  }
  return verdict('Warm hits, 50 clients, beside fills: p95', p95s, 'ms', 40);
}

const verdict = (name: string, values: readonly number[], unit: string, bar: number): string =>
  `${name} ${median(values).toFixed(1)} ${unit} (${spread(values)}), bar ${bar}: ${median(values) <= bar ? 'pass' : 'FALLS SHORT'}`;

/** The start with 1 000 packs, first without and then with sidecars, and the longest turn of the event loop while they are mounted. */
async function manyPacks(): Promise<string[]> {
  const data = join(dir, 'many');
  mkdirSync(join(data, 'packs'), { recursive: true });
  const add = (): void => {
    for (let index = 0; index < 1000; index++) {
      const tile = { z: 0, x: 0, y: 0, bytes: Buffer.from(`pack ${index} ${'x'.repeat(2000)}`) };
      writeFileSync(join(data, 'packs', `p${index}.pmtiles`), makePmtiles({ tiles: [tile], type: 'png' }));
    }
  };
  add();
  const [first, second] = [await timeStart(data), await timeStart(data)];
  rmSync(join(data, 'packs'), { recursive: true });
  mkdirSync(join(data, 'packs'));
  const watched = own(await startEdge(data, { preload: path('./loop-watch.ts') }));
  await untilReady(watched);
  add();
  await callChild(watched.child, 'watch');
  watched.child.kill('SIGHUP');
  await untilMounted(watched, 'p999');
  const { longest_turn_ms } = await callChild<{ longest_turn_ms: number }>(watched.child, 'stop');
  return [
    `${verdict('1 000 packs: first start', [first.wall_s], 's', 3)}; CPU ${first.cpu_s.toFixed(1)} s`,
    `${verdict('1 000 packs: start with sidecars', [second.wall_s], 's', 3)}; CPU ${second.cpu_s.toFixed(1)} s`,
    verdict('1 000 packs: longest turn of the event loop while they are mounted', [longest_turn_ms], 'ms', 20),
  ];
}

/** Until the service is ready. On a busy machine the CPU time says more than the wall-clock time. */
async function timeStart(data: string): Promise<{ readonly wall_s: number; readonly cpu_s: number }> {
  const start = performance.now();
  const edge = own(await startEdge(data, {}));
  await untilReady(edge);
  const took = { wall_s: (performance.now() - start) / 1000, cpu_s: cpu_us(edge.pid) / 1e6 };
  edge.child.kill();
  await once(edge.child, 'exit');
  return took;
}

async function until(isDone: () => Promise<boolean>): Promise<void> {
  for (const end = performance.now() + 60_000; !(await isDone()); await sleep(5))
    if (performance.now() > end) throw new Error('edge did not become ready within a minute');
}

const statusOf = async (url: string): Promise<number> => {
  const answer = await fetch(url);
  await answer.arrayBuffer();
  return answer.status;
};

const untilReady = ({ port }: Server): Promise<void> =>
  until(async () => (await statusOf(`http://127.0.0.1:${port}/readyz`)) === 200);

const untilMounted = (server: Server, name: string): Promise<void> =>
  until(async () => (await statusOf(urlOf(server, `pack/${name}/0/0/0.png`))) === 200);

/** 200 clients miss one key together: the time between the first and the last answer, and the requests at the origin. */
async function oneFillForAll(origin: Origin): Promise<string> {
  const edge = own(await startEdge(join(dir, 'together'), {}, ...live(origin)));
  await untilReady(edge);
  const gaps_ms: number[] = [];
  const counts: number[] = [];
  for (let round = -2; round < (quick ? 5 : 9); round++) {
    const before = await origin.requests();
    const sockets = await Promise.all(Array.from({ length: 200 }, () => connected(edge.port)));
    const text = newFills(`live/${origin.host}/`, 1)[0]!;
    const times = await Promise.all(
      sockets.map(async (socket) => {
        socket.write(text);
        const [piece] = (await once(socket, 'data')) as [Buffer];
        if (!piece.toString('latin1', 0, 12).startsWith('HTTP/1.1 200'))
          throw new Error(piece.toString('latin1', 0, 400));
        return performance.now();
      }),
    );
    for (const socket of sockets) socket.destroy();
    if (round < 0) continue;
    gaps_ms.push(Math.max(...times) - Math.min(...times));
    counts.push((await origin.requests()) - before);
  }
  const upstream = `requests to the origin: ${Math.max(...counts)} (bar 1)`;
  return `${verdict('200 misses on one key: last answer after the first', gaps_ms, 'ms', 20)}; ${upstream}`;
}

async function connected(port: number) {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  await once(socket, 'connect');
  return socket;
}

if (!hasNginx()) {
  process.stderr.write('nginx is not installed: apt-get install nginx\n');
  process.exit(1);
}
try {
  const origin = own(await startOrigin(dir));
  const lines = await compare((await ratios(origin)).filter(({ name }) => isWanted(name)));
  const others = [
    ...(isWanted('hits beside fills') ? [await hitsBesideFills(origin)] : []),
    ...(isWanted('misses on one key') ? [await oneFillForAll(origin)] : []),
    ...(isWanted('many packs') ? await manyPacks() : []),
  ];
  process.stdout.write(`\n${machineLine()}\n\n${table(RATIO_HEAD, lines)}\n\n${others.join('\n')}\n`);
} finally {
  for (const child of children) child.kill();
  rmSync(dir, { recursive: true });
}
