/**
 * A volume with ten million chunks: how fast it opens, what it needs of memory, and whether it still takes writes as fast as
 * an empty one.
 *
 * The chunks are small (the index does not care how large they are) and written straight to the volume. Each measured part
 * runs in a process of its own, so that memory is that of a volume that was just opened.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { blake3 } from '@napi-rs/blake-hash';
import { LocalVolume, RecordType, type NewRecord } from '@ron/cas';
import { machineLine, quick, table } from './lib.ts';

const CHUNKS = quick ? 500_000 : 10_000_000;
const CHUNK_BYTES = 64;
/** What is put, and synced, together where it is measured: as with 64 clients. */
const BATCH = 64;
/** And where it is not. */
const FILL_BATCH = 4096;
const MEASURED = 100_000;
const { signal } = new AbortController();

function recordsFrom(first: number, count: number): NewRecord[] {
  return Array.from({ length: count }, (_, at) => {
    const payload = createHash('sha512')
      .update(String(first + at))
      .digest()
      .subarray(0, CHUNK_BYTES);
    return { type: RecordType.chunk, id: blake3(payload), payload };
  });
}

interface Report {
  readonly open_ms: number;
  readonly puts_per_s: number;
  readonly rss_mib: number;
}

/** Opens the volume and puts `count` chunks from number `first` on. */
async function part(dir: string, first: number, count: number, batch: number): Promise<Report> {
  const start = performance.now();
  const volume = await LocalVolume.open({ dir, signal });
  const open_ms = performance.now() - start;
  let put_ms = 0;
  for (let at = 0; at < count; at += batch) {
    const records = recordsFrom(first + at, Math.min(batch, count - at));
    const begun = performance.now();
    await volume.put(records, signal);
    put_ms += performance.now() - begun;
  }
  const rss_mib = process.memoryUsage.rss() / 2 ** 20;
  await volume.close();
  return { open_ms, puts_per_s: (count / put_ms) * 1000, rss_mib };
}

if (process.argv[2] === 'part') {
  const [dir, first, count, batch] = process.argv.slice(3);
  process.stdout.write(JSON.stringify(await part(dir!, Number(first), Number(count), Number(batch))));
} else {
  const out = fileURLToPath(new URL('./out/', import.meta.url));
  mkdirSync(out, { recursive: true });
  const dir = mkdtempSync(join(out, 'many-'));
  const run = (first: number, count: number, batch = BATCH): Report => {
    const args = [fileURLToPath(import.meta.url), 'part', dir, String(first), String(count), String(batch)];
    return JSON.parse(execFileSync(process.execPath, args, { encoding: 'utf8' })) as Report;
  };
  try {
    const empty = run(0, MEASURED);
    run(MEASURED, CHUNKS - MEASURED, FILL_BATCH);
    const full = run(CHUNKS, MEASURED);
    const share = full.puts_per_s / empty.puts_per_s;
    const verdict = (isMet: boolean): string => (isMet ? 'pass' : 'FALLS SHORT');
    process.stdout.write(
      `${machineLine()}\n\n${table(
        ['measured', 'empty', `${CHUNKS.toLocaleString('en')} chunks`, 'bar', 'verdict'],
        [
          [
            'open',
            `${empty.open_ms.toFixed(0)} ms`,
            `${full.open_ms.toFixed(0)} ms`,
            '< 5 s',
            verdict(full.open_ms < 5000),
          ],
          [
            'memory after the writes',
            `${empty.rss_mib.toFixed(0)} MiB`,
            `${full.rss_mib.toFixed(0)} MiB`,
            '< 1 GiB',
            verdict(full.rss_mib < 1024),
          ],
          [
            `durable puts, ${BATCH} at a time`,
            `${empty.puts_per_s.toFixed(0)} /s`,
            `${full.puts_per_s.toFixed(0)} /s (${share.toFixed(2)}x)`,
            '>= 0.8x',
            verdict(share >= 0.8),
          ],
        ],
      )}\n`,
    );
  } finally {
    rmSync(dir, { recursive: true });
  }
}
