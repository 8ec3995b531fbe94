/** Checks edge: its packs, its mode, refused requests, and the disk of its cache. */
import { open, readdir, statfs } from 'node:fs/promises';
import { extname, join } from 'node:path';
import { EdgeClient } from '@ron/client';
import { reserveBytes } from '@ron/log';
import { PACK_NAME_PATTERN, type PackListDto } from '@ron/proto';
import { messageOf, systemCode } from '../exits.ts';
import { humanSize } from '../format.ts';
import { socketUrl, type Home } from '../home.ts';
import type { Io } from '../io.ts';
import { metricsOf, sumOf } from '../metrics-text.ts';
import { oneLine } from '../printable.ts';
import { withClient } from '../service-client.ts';
import type { Finding } from './finding.ts';

const CALL_MS = 5000;
/** Packs that are listed one by one. */
const PACKS_LISTED_MAX = 20;

/** Checks the running edge. */
export async function checkEdge(home: Home, io: Io, signal: AbortSignal): Promise<Finding[]> {
  try {
    const [metrics, packs, disk] = await Promise.all([
      metricsOf(socketUrl(home, 'edge'), signal),
      packsOf(home, io, signal),
      checkCacheDisk(home),
    ]);
    return [...packFindings(packs, metrics), ...refusedFindings(metrics), ...disk];
  } catch (error) {
    return [{ level: 'warn', what: 'edge cannot be checked', fix: messageOf(error) }];
  }
}

function packsOf(home: Home, io: Io, signal: AbortSignal): Promise<PackListDto> {
  const { RON_URL: _, ...env } = io.env;
  const client = (init: ConstructorParameters<typeof EdgeClient>[0]): EdgeClient =>
    new EdgeClient({ ...init, deadline_ms: CALL_MS });
  return withClient('edge', client, { dir: home.dir }, { env }, signal, (edge) => edge.packs({ signal }));
}

export function packFindings({ packs, bad }: PackListDto, metrics: string): Finding[] {
  const damaged = packs.filter(({ problem }) => problem !== undefined);
  const problems = [
    ...damaged.map(({ name, problem }): Finding => {
      const fix = `put the file back with \`ron pack add FILE --name ${name}\`, or remove it with \`ron pack rm ${name}\``;
      return { level: 'fail', what: oneLine(`pack ${name} is not served: ${problem}`), fix };
    }),
    ...bad.map(({ name, file, reason, is_served }): Finding => {
      const fix = fixOf(name, reason, is_served);
      const effect = is_served ? ', and the earlier version is served' : '';
      return { level: is_served ? 'warn' : 'fail', what: oneLine(`${file} is refused${effect}: ${reason}`), fix };
    }),
  ];
  const mode = sumOf(metrics, 'edge_live') > 0 ? 'live' : 'offline';
  const served = packs.length - damaged.length;
  const ok: Finding = { level: 'ok', what: `${served === 1 ? '1 pack' : `${served} packs`} served, edge is ${mode}` };
  const more = problems.length - PACKS_LISTED_MAX;
  const listed = problems.slice(0, PACKS_LISTED_MAX);
  if (more <= 0) return [ok, ...listed];
  return [ok, ...listed, { level: 'fail', what: `${more} more packs are not served`, fix: 'run `ron pack ls`' }];
}

/** `ron pack rm` removes the name: not an option while the name is served, or if two files have it. */
function fixOf(name: string, reason: string, isServed: boolean): string {
  if (!PACK_NAME_PATTERN.test(name)) return 'rename or delete it in the directory of the packs';
  if (reason.endsWith('remove one of the two')) return 'rename or delete one of the two in the directory of the packs';
  const replace = `replace it with \`ron pack add FILE --name ${name}\``;
  return isServed ? replace : `${replace}, or remove it with \`ron pack rm ${name}\``;
}

function refusedFindings(metrics: string): Finding[] {
  const refused = sumOf(metrics, 'busy_rejections_total');
  if (refused === 0) return [];
  const fix = 'see "Misses refused with 429" in docs/operations.md';
  return [{ level: 'warn', what: `edge refused ${refused} requests, because a queue was full`, fix }];
}

/** No finding in amnesia, or before the first start. */
export async function checkCacheDisk(home: Home): Promise<Finding[]> {
  const dir = home.of('edge').data;
  try {
    const { bavail, blocks, bsize } = await statfs(dir);
    const [free_bytes, reserve_bytes] = [bavail * bsize, reserveBytes(blocks * bsize)];
    if (free_bytes > reserve_bytes) return [];
    const what = `the disk of the cache of edge is full: ${humanSize(free_bytes)} free, ${humanSize(reserve_bytes)} required`;
    const fix = `free disk space in ${dir}, or lower edge.cache.disk_bytes; until then new assets of origins are not cached`;
    return [{ level: 'warn', what, fix }];
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return [];
    return [{ level: 'warn', what: `${dir} cannot be read (${systemCode(error) ?? messageOf(error)})` }];
  }
}

const MAGIC: Readonly<Record<string, string>> = { '.pmtiles': 'PMTiles\u0003', '.mbtiles': 'SQLite format 3\u0000' };

/** Checks the files of the packs of a stopped node, by their first bytes. */
export async function checkPackFiles(home: Home): Promise<Finding[]> {
  const dir = join(home.of('edge').data, 'packs');
  const files = await readdir(dir).catch(() => []);
  const packs = files.filter((file) => Object.hasOwn(MAGIC, extname(file))).toSorted();
  const wrong: Finding[] = [];
  for (const file of packs) {
    const magic = MAGIC[extname(file)]!;
    const what = oneLine(`${join(dir, file)} is not a ${extname(file).slice(1)} file`);
    if ((await firstBytes(join(dir, file), magic.length)) !== magic)
      wrong.push({ level: 'fail', what, fix: 'replace or delete it: edge is not ready with it' });
  }
  if (wrong.length > 0) return wrong.slice(0, PACKS_LISTED_MAX);
  return packs.length === 0 ? [] : [{ level: 'ok', what: packs.length === 1 ? '1 pack' : `${packs.length} packs` }];
}

async function firstBytes(path: string, count: number): Promise<string> {
  try {
    await using file = await open(path);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(count), 0, count, 0);
    return buffer.toString('latin1', 0, bytesRead);
  } catch {
    return '';
  }
}
