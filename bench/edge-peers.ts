/** The processes of the edge benchmark: edge, nginx with the same tiles, an HTTPS origin, and the floor of a fill. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Authority } from '@ron/egress/testing';
import { makePmtiles, type TestTile } from '../services/edge/test/packs/make-pmtiles.ts';
import { startNginx, type Nginx } from './nginx.ts';
import { path, startPeer, startService, type Server, type ServiceProcess, type StartInit } from './servers.ts';

export interface Origin {
  /** `localhost:PORT`, as in the paths of live assets. */
  readonly host: string;
  readonly ca_file: string;
  readonly child: ChildProcess;
  /** Requests so far. */
  requests(): Promise<number>;
}

export async function startOrigin(dir: string): Promise<Origin> {
  const authority = new Authority();
  const { key, cert } = authority.issue({ names: 'DNS:localhost,IP:127.0.0.1' });
  const files = { key: join(dir, 'origin.key'), cert: join(dir, 'origin.pem'), ca: join(dir, 'ca.pem') };
  writeFileSync(files.key, key);
  writeFileSync(files.cert, cert);
  writeFileSync(files.ca, authority.pem);
  authority[Symbol.dispose]();
  const child = spawn(process.execPath, [path('./tile-origin.ts'), files.key, files.cert], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const [port] = (await once(child.stdout, 'data')) as [Buffer];
  return {
    host: `localhost:${Number(String(port))}`,
    ca_file: files.ca,
    child,
    async requests() {
      const answered = once(child.stdout, 'data');
      child.stdin.write('?\n');
      const [text] = (await answered) as [Buffer];
      return Number(String(text));
    },
  };
}

export const startBareFill = (dir: string, origin: Origin): Promise<ServiceProcess> =>
  startPeer('./bare-fill-server.ts', dir, `https://${origin.host}`, origin.ca_file);

/** All limits on rates are raised: the load generator is one address. */
const RAISED = [
  '--ingress.rps_limit=1000000',
  '--ingress.max_inflight=4096',
  '--server.bind=127.0.0.1:0',
  '--log.level=error',
];

export async function startEdge(dir: string, init: StartInit, ...flags: string[]): Promise<ServiceProcess> {
  return await startService('edge', init, [`--data_dir=${dir}`, ...RAISED, ...flags]);
}

export const live = (origin: Origin): string[] => [
  '--edge.mode=live',
  `--fill.allow=https://${origin.host}`,
  '--fill.networks=127.0.0.0/8,::1/128',
  `--fill.ca_file=${origin.ca_file}`,
];

/** Writes the tiles as one pack for edge, and as files for nginx. */
export function writeTiles(tiles: readonly TestTile[], data_dir: string, www: string): void {
  mkdirSync(join(data_dir, 'packs'), { recursive: true });
  writeFileSync(join(data_dir, 'packs', 'bench.pmtiles'), makePmtiles({ tiles, type: 'png', leaf_entries: 512 }));
  for (const { z, x, y, bytes } of tiles) {
    const place = join(www, 'edge/assets/pack/bench', String(z), String(x));
    mkdirSync(place, { recursive: true });
    writeFileSync(join(place, `${y}.png`), bytes);
  }
}

/** Serves the tiles as files, and the origin through its cache. */
export async function startTileNginx(home: string, www: string, origin: Origin): Promise<Nginx> {
  const cached = `location /edge/assets/live/${origin.host}/ {
    proxy_pass https://${origin.host}/; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_ssl_verify off;
    proxy_cache fills; proxy_cache_valid 200 1h; }`;
  const types = 'types { image/png png; }';
  return await startNginx(
    home,
    `root ${www}; ${cached}`,
    `${types} proxy_cache_path ${home}/cache keys_zone=fills:10m;`,
  );
}

export const request = (asset: string, headers = ''): string =>
  `GET /edge/assets/${asset} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench/1\r\nAccept: */*\r\n${headers}\r\n`;

export const urlOf = ({ port }: Server, asset: string): string => `http://127.0.0.1:${port}/edge/assets/${asset}`;
