/**
 * `npm run bench [-- NAME... --quick]`: runs the benchmarks one after the other. Each has its own process, so that none
 * inherits the heap or the compiled code of another.
 */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const BENCHES = [
  'kernel',
  'ingress',
  'storage',
  'steady',
  'transfer',
  'durability',
  'many-chunks',
  'tlog',
  'kms',
  'internal-calls',
  'index',
  'edge',
  'mailbox',
  'interop',
  'interop-put',
  'footprint',
];

const flags = process.argv.slice(2).filter((argument) => argument.startsWith('-'));
const names = process.argv.slice(2).filter((argument) => !argument.startsWith('-'));
const unknown = names.filter((name) => !BENCHES.includes(name));
if (unknown.length > 0) {
  process.stderr.write(`unknown benchmark ${unknown.join(', ')}; expected one of ${BENCHES.join(', ')}\n`);
  process.exit(64);
}
for (const name of names.length > 0 ? names : BENCHES) {
  const file = fileURLToPath(new URL(`./${name}.ts`, import.meta.url));
  const { status } = spawnSync(process.execPath, [...process.execArgv, file, ...flags], { stdio: 'inherit' });
  if (status !== 0) process.exitCode = 1;
}
