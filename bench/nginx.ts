/** nginx with one worker, as a peer in the same run. */
import { execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Server } from './servers.ts';

export const hasNginx = (): boolean => spawnSync('nginx', ['-v']).error === undefined;

export interface Nginx extends Server {
  readonly child: ChildProcess;
}

/** `server` is the content of the server block, `http` that of the block around it. The directory `home` is created. */
export async function startNginx(home: string, server: string, http = ''): Promise<Nginx> {
  const port = await freePort();
  mkdirSync(home);
  writeFileSync(
    join(home, 'nginx.conf'),
    `user root; worker_processes 1; daemon off; pid ${home}/pid; error_log ${home}/error.log;
events { worker_connections 4096; }
http { access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_requests 1000000000;
  open_file_cache max=10000 inactive=60s; open_file_cache_valid 60s; default_type application/octet-stream;
  etag on; ${http} server { listen 127.0.0.1:${port}; ${server} } }`,
  );
  const child = spawn('nginx', ['-c', join(home, 'nginx.conf'), '-p', home], { stdio: 'ignore' });
  for (let tries = 0; tries < 100; tries++) {
    try {
      await fetch(`http://127.0.0.1:${port}/`).then((answer) => answer.body?.cancel());
      return { port, pid: workerOf(child), child };
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
  child.kill();
  throw new Error(`nginx does not answer: see ${home}/error.log`);
}

function workerOf({ pid }: ChildProcess): number {
  const children = execFileSync('pgrep', ['-P', String(pid), '-a', 'nginx'], { encoding: 'utf8' })
    .trim()
    .split('\n');
  return Number.parseInt(
    children.find((line) => line.includes('worker'))!,
    10,
  );
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}
