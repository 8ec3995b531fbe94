/** Shared by the tests of the registry: packs in memory, and uploads over HTTP. */
import assert from 'node:assert/strict';
import { readFile, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { addressOf, type Reply } from '@ron/testkit/service';
import { eventually, tempDir } from '@ron/testkit';
import type { TestEdge } from '../support.ts';
import { makeMbtiles, pngTile, pngTiles } from './make-mbtiles.ts';
import { makePmtiles } from './make-pmtiles.ts';

/** A PMTiles pack of zoom levels 0 to 2, whose tiles differ for each `seed`. */
export function somePmtiles(seed: number): Buffer {
  const tiles = pngTiles(2).map(({ z, x, y }) => ({ z, x, y, bytes: tileOf(seed, z, x, y) }));
  return makePmtiles({ tiles, type: 'png' });
}

/** An MBTiles pack with the same tiles as `somePmtiles`. */
export async function someMbtiles(seed: number): Promise<Buffer> {
  await using temp = await tempDir();
  const path = join(temp.path, 'some.mbtiles');
  const tiles = pngTiles(2).map(({ z, x, y }) => ({ z, x, y, data: tileOf(seed, z, x, y) }));
  makeMbtiles({ path, tiles });
  return await readFile(path);
}

export function tileOf(seed: number, z: number, x: number, y: number): Uint8Array {
  return Buffer.concat([pngTile(z, x, y), Buffer.from(` of ${seed}`)]);
}

export const packsDir = (edge: TestEdge): string => join(edge.dir, 'packs');

/** The files of the packs, without sidecars. */
export async function packFiles(edge: TestEdge): Promise<string[]> {
  return (await readdir(packsDir(edge))).filter((name) => !name.endsWith('.b3')).toSorted();
}

export async function putPack(edge: TestEdge, name: string, body: Buffer, query = ''): Promise<Reply> {
  const headers = { ...(await edge.allow()), 'content-type': 'application/octet-stream' };
  return await edge.send('PUT', `/edge/packs/${name}${query}`, { headers, body });
}

/** Uploads a pack that must be accepted. */
export async function mountPack(edge: TestEdge, name: string, body: Buffer): Promise<void> {
  const reply = await putPack(edge, name, body);
  assert.equal(reply.status, 201, reply.text);
  assert.equal(reply.json.address, addressOf(body));
}

/** The tile 2/3/1 of a pack, over HTTP. */
export async function readTile(edge: TestEdge, name: string): Promise<Buffer> {
  const reply = await edge.send('GET', `/edge/assets/pack/${name}/2/3/1.png`);
  assert.equal(reply.status, 200, reply.text);
  return reply.body;
}

export async function isReady(edge: TestEdge): Promise<boolean> {
  return (await edge.send('GET', '/readyz')).status === 200;
}

export async function untilReady(edge: TestEdge): Promise<void> {
  await eventually('edge is ready', () => isReady(edge));
}

/** The reason of a closed gate of `/readyz`; undefined if it is open. */
export async function gateReason(edge: TestEdge, name: string): Promise<string | undefined> {
  const { json } = await edge.send('GET', '/readyz');
  const gates = json.gates as { gate: string; open: boolean; reason?: string }[];
  return gates.find(({ gate }) => gate === name)?.reason;
}

export const removeFile = (edge: TestEdge, file: string): Promise<void> => rm(join(packsDir(edge), file));
