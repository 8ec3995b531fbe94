/**
 * `/put` at twice the capacity of a slow storage, and reads beside it: interop, then a plain FIFO of 512 with the same workers, the
 * same storage and the same load. Passport is the real one. The plot shows the answers in time over the run.
 */
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { scopesOf } from '@ron/proto';
import { Generator, outcomesOf, sum, type Bench } from './interop-report.ts';
import { UNLIMITED, type InteropNode } from './interop-node.ts';
import type { Report } from './interop-order.ts';
import { svgOf } from './interop-plot.ts';
import { quick } from './lib.ts';
import { firstLine, path, startPeer } from './servers.ts';

/** Writes that storage executes at a time, and the workers of both servers: more would only wait in storage. */
const WORKERS = 32;
/** Below `brownout.p95`: storage is slow, not sick. */
const WRITE_MS = 200;
/** 160 writes per second at most. A FIFO of 512 then holds 3.2 s of work, which is above `DEADLINE_MS`. */
const STORAGE_PER_S = (WORKERS * 1000) / WRITE_MS;
const PUT_BYTES = 1024;
const SECONDS = quick ? 2 : 30;
const CAPACITY_SECONDS = quick ? 0.6 : 5;
const DEADLINE_MS = 2000;
const READS_PER_S = 100;
const CONNECTIONS = 2048;
const GOODPUT_MIN = 0.8;
const READS_MIN = 0.95;
const FIFO = 'FIFO of 512';

export async function overload(bench: Bench): Promise<void> {
  const { node, generator, findings } = bench;
  const storage = await startSlowStorage(node);
  const reader = new Generator();
  try {
    await node.startInterop([...UNLIMITED, `--interop.put_workers=${WORKERS}`]);
    const load = {
      generator,
      reader,
      authorization: `Bearer ${await node.token('interop', { scopes: scopesOf('interop') })}`,
    };
    const interop = node.get('interop').port;
    const capacity = await capacityOf(interop, load);
    const name = `/put behind a storage of ${STORAGE_PER_S}/s (${WORKERS} slots, ${WRITE_MS} ms): capacity through interop, per s`;
    findings.row(name, capacity.toFixed(0));
    const ours = await runOf(interop, capacity, load);
    reportOn(bench, 'interop', capacity, ours);
    const fifo = await startPeer('./interop-fifo.ts', `${bench.dir}/fifo`, node.socketPath('storage'), String(WORKERS));
    const plain = await runOf(fifo.port, capacity, load);
    fifo.child.kill();
    reportOn(bench, FIFO, capacity, plain);
    writePlot(capacity, ours, plain);
    await node.stop('interop');
  } finally {
    storage.kill();
    reader.child.kill();
  }
}

async function startSlowStorage(node: InteropNode) {
  const args = [path('./interop-storage.ts'), node.socketPath('storage'), String(WORKERS), String(WRITE_MS)];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  await firstLine(child);
  return child;
}

interface Load {
  readonly generator: Generator;
  readonly reader: Generator;
  readonly authorization: string;
}

interface Outcome {
  readonly puts: Report;
  readonly reads: Report;
}

/** With more clients than workers, no worker waits for a client. */
async function capacityOf(port: number, { generator, authorization }: Load): Promise<number> {
  const what = { kind: 'put', authorization, bytes: PUT_BYTES } as const;
  const order = { port, what, connections: WORKERS * 1.5 };
  await generator.run({ ...order, requests: WORKERS * 4 });
  const requests = Math.round((CAPACITY_SECONDS * 1000) / WRITE_MS) * WORKERS;
  const { seconds } = await generator.run({ ...order, requests });
  return requests / seconds;
}

async function runOf(port: number, capacity: number, { generator, reader, authorization }: Load): Promise<Outcome> {
  const rate_per_s = 2 * capacity;
  const order = { port, connections: CONNECTIONS, deadline_ms: DEADLINE_MS };
  const [puts, reads] = await Promise.all([
    generator.run({
      ...order,
      what: { kind: 'put', authorization, bytes: PUT_BYTES },
      rate_per_s,
      requests: Math.round(rate_per_s * SECONDS),
    }),
    reader.run({
      ...order,
      what: { kind: 'get', path: `/o/b3:${'0'.repeat(64)}` },
      rate_per_s: READS_PER_S,
      requests: READS_PER_S * SECONDS,
    }),
  ]);
  return { puts, reads };
}

/** Only interop has bars. */
function reportOn({ findings }: Bench, name: string, capacity: number, { puts, reads }: Outcome): void {
  const [isOurs, within] = [name !== FIFO, `within ${DEADLINE_MS / 1000} s`];
  const goodput = sum(during(puts)) / SECONDS / capacity;
  findings.row(
    `${name}, twice the capacity for ${SECONDS} s: goodput ${within}`,
    `${percent(goodput)} (p95 ${puts.good.p95_ms.toFixed(0)} ms; ${outcomesOf(puts)})`,
    isOurs ? `>= ${percent(GOODPUT_MIN)}` : '',
    isOurs && !quick ? goodput >= GOODPUT_MIN : undefined,
  );
  const answered = reads.good.count / sum(Object.values(reads.outcomes));
  findings.row(
    `${name}: ${READS_PER_S} reads/s beside it, answered ${within}`,
    `${percent(answered)} (p95 ${reads.good.p95_ms.toFixed(0)} ms; ${outcomesOf(reads)})`,
    isOurs ? `>= ${percent(READS_MIN)}` : '',
    isOurs && !quick ? answered >= READS_MIN : undefined,
  );
}

/** Good answers in each second of the load. */
const during = ({ good_by_second }: Report): number[] =>
  Array.from({ length: SECONDS }, (_, second) => good_by_second[second] ?? 0);

const percent = (share: number): string => `${(share * 100).toFixed(0)} %`;

/** Only a full run replaces the picture of bench/RESULTS.md. */
function writePlot(capacity: number, ours: Outcome, plain: Outcome): void {
  const svg = svgOf({
    title: 'Answers within 2 s while /put gets twice the capacity of storage',
    unit: 'per second',
    level: { name: 'capacity for /put', value: Math.round(capacity) },
    series: [
      { name: 'interop, /put', color: '#0284c7', values: during(ours.puts) },
      { name: 'interop, reads', color: '#0284c7', values: during(ours.reads), isDashed: true },
      { name: 'FIFO of 512, /put', color: '#dc2626', values: during(plain.puts) },
      { name: 'FIFO of 512, reads', color: '#dc2626', values: during(plain.reads), isDashed: true },
    ],
  });
  writeFileSync(path(quick ? './out/interop-overload.svg' : './interop-overload.svg'), svg);
}
