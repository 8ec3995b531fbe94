/**
 * The bars of interop. `node bench/interop.ts [PART...] [--quick]`
 *
 * CPU time is that of the processes with all their threads. The generators are processes of their own, with requests that are
 * built before the clock starts; their CPU time is reported. Parts: `webhooks` (CPU, latency, signatures), `forged` (a flood beside
 * verified webhooks), `outage` (mailbox killed under load), `overload` (`/put` at twice the capacity of a slow storage, with a FIFO
 * in the same run; writes `bench/interop-overload.svg`). With `node --cpu-prof`, each service writes its profile.
 */
import { rmSync } from 'node:fs';
import { forged, outage } from './interop-faults.ts';
import { InteropNode } from './interop-node.ts';
import { overload } from './interop-overload.ts';
import { Findings, Generator, type Bench } from './interop-report.ts';
import { webhooks } from './interop-webhooks.ts';
import { machineLine, scratchDir } from './lib.ts';

const parts = { webhooks, forged, outage, overload };
const only = process.argv.slice(2).filter((argument) => !argument.startsWith('-'));
const wanted = Object.entries(parts).filter(([name]) => only.length === 0 || only.includes(name));

const dir = scratchDir('interop');
const generator = new Generator();
const findings = new Findings();
try {
  await using node = await InteropNode.open(dir);
  await Promise.all([node.start('passport'), node.start('mailbox')]);
  const bench: Bench = { node, findings, generator, dir };
  for (const [, run] of wanted) await run(bench);
  process.stdout.write(`\n${sectionOf(findings)}\n`);
} finally {
  generator.child.kill();
  rmSync(dir, { recursive: true, force: true });
}

/** The section for bench/RESULTS.md. */
function sectionOf({ markdown }: Findings): string {
  const [date] = new Date().toISOString().split('T');
  const flags = process.argv.slice(2).map((argument) => ` ${argument}`);
  return [
    `## interop (\`npm run bench -- interop${flags.join('')}\`, ${date})`,
    machineLine(),
    'CPU time is that of the processes with all their threads. Requests of the generators are built before the clock starts.',
    'In the open loops times count from the scheduled send.',
    markdown,
    ...(wanted.some(([name]) => name === 'overload')
      ? ['![Answers in time under overload: interop and a FIFO of 512](interop-overload.svg)']
      : []),
  ].join('\n\n');
}
