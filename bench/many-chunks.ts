/**
 * A volume with ten million chunks, compared with an empty one: time to open, memory, and write rate.
 *
 * The measured chunks have 64 KiB and random ids. The chunks that fill the volume beforehand are small and sorted by id,
 * because otherwise the run would take an hour and a terabyte; the entries of the index are the same. Each part runs in its
 * own process, so that memory is that of a freshly opened volume.
 */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { blake3 } from '@napi-rs/blake-hash';
import { LocalVolume, RecordType, type NewRecord } from '@ron/cas';
import { machineLine, quick, scratchDir, table } from './lib.ts';

const CHUNKS = quick ? 500_000 : 10_000_000;
const CHUNK_BYTES = 65_536;
/** Chunks that are written and synced together, as with 16 clients. */
const BATCH = 16;
const FILL_BATCH = 4096;
const MEASURED = quick ? 2000 : 12_000;
const { signal } = new AbortController();

interface Report {
  readonly open_ms: number;
  readonly puts_per_s: number;
  /** Private memory of the process; mapped pages of the index belong to the page cache. */
  readonly own_mib: number;
}

const ownMemory_mib = (): number =>
  Number(/^RssAnon:\s+(\d+) kB/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]) / 1024;

async function measure(dir: string): Promise<Report> {
  const start = performance.now();
  const volume = await LocalVolume.open({ dir, signal });
  const open_ms = performance.now() - start;
  let put_ms = 0;
  for (let at = 0; at < MEASURED; at += BATCH) {
    const records = Array.from({ length: BATCH }, (): NewRecord => {
      const payload = randomBytes(CHUNK_BYTES);
      return { type: RecordType.chunk, id: blake3(payload), payload };
    });
    const begun = performance.now();
    await volume.put(records, signal);
    put_ms += performance.now() - begun;
  }
  const own_mib = ownMemory_mib();
  await volume.close();
  return { open_ms, puts_per_s: (MEASURED / put_ms) * 1000, own_mib };
}

async function fill(dir: string): Promise<void> {
  await using volume = await LocalVolume.open({ dir, signal });
  const payload = Buffer.alloc(16);
  for (let first = 0; first < CHUNKS; first += FILL_BATCH) {
    const records = Array.from({ length: Math.min(FILL_BATCH, CHUNKS - first) }, (_, at): NewRecord => {
      const id = randomBytes(32);
      id.writeUInt32BE(Math.floor(((first + at) / CHUNKS) * 2 ** 32), 0);
      return { type: RecordType.chunk, id, payload };
    });
    await volume.put(records, signal, 'later');
  }
}

const [step, given] = process.argv.slice(2);
if (step === 'fill') await fill(given!);
else if (step === 'measure') process.stdout.write(JSON.stringify(await measure(given!)));
else {
  const dir = scratchDir('many-chunks');
  const flags = quick ? ['--quick'] : [];
  const run = (name: string, at: string): string =>
    execFileSync(process.execPath, [fileURLToPath(import.meta.url), name, at, ...flags], { encoding: 'utf8' });
  try {
    run('fill', join(dir, 'full'));
    const empty = JSON.parse(run('measure', join(dir, 'empty'))) as Report;
    const full = JSON.parse(run('measure', join(dir, 'full'))) as Report;
    const share = full.puts_per_s / empty.puts_per_s;
    const row = (name: string, show: (report: Report) => string, bar: string, isMet: boolean): string[] => [
      name,
      show(empty),
      show(full),
      bar,
      isMet ? 'pass' : 'FALLS SHORT',
    ];
    const rows = [
      row('open', (report) => `${report.open_ms.toFixed(0)} ms`, '< 5 s', full.open_ms < 5000),
      row(
        'own memory after the writes',
        (report) => `${report.own_mib.toFixed(0)} MiB`,
        '< 1 GiB',
        full.own_mib < 1024,
      ),
      row(
        `durable puts of 64 KiB, ${BATCH} at a time`,
        (report) => `${report.puts_per_s.toFixed(0)} /s`,
        `>= 0.8x (is ${share.toFixed(2)}x)`,
        share >= 0.8,
      ),
    ];
    const head = ['measured', 'empty', `${CHUNKS.toLocaleString('en')} chunks`, 'bar', 'verdict'];
    process.stdout.write(`${machineLine()}\n\n${table(head, rows)}\n`);
  } finally {
    rmSync(dir, { recursive: true });
  }
}
