/** All benchmarks of index, each in its own process. `node bench/index.ts [--quick]` */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const PARTS = ['index-db', 'index-dht', 'index-dht-requests', 'index-resolve'];

for (const part of PARTS) {
  const file = fileURLToPath(new URL(`./${part}.ts`, import.meta.url));
  if (!existsSync(file)) continue;
  const args = [...process.execArgv, file, ...process.argv.slice(2)];
  if (spawnSync(process.execPath, args, { stdio: 'inherit' }).status !== 0) process.exitCode = 1;
}
