/**
 * `node packages/durability/src/repair/planner.bench.ts [CHUNKS]`: a plan over many chunks with two copies on six volumes, of which
 * 1000 lack one. Bars: 10 million in 10 s, with less than 200 MiB of memory. The volumes generate their ids, so this
 * is the walk alone; listing ids from an index on disk takes about a quarter of a microsecond each on top.
 */
import { MemoryVolume, RecordType, type Held, type Kind } from '@ron/cas';
import { Planner } from './planner.ts';
import { RepairQueue } from './repair-queue.ts';
import { VolumeSet } from '../set/volume-set.ts';

const { signal } = new AbortController();
const CHUNKS = Number(process.argv[2] ?? 10_000_000);
const VOLUMES = 6;
const MISSING_EVERY = Math.floor(CHUNKS / 1000);
const STEP = Math.floor(2 ** 48 / CHUNKS);

/** The chunk with a number lies on the volume of that number and on the next one, in turns. */
class MadeUpVolume extends MemoryVolume {
  readonly #number: number;

  constructor(number: number) {
    super({ name: `v${number}`, bytes_max: 1e6 });
    this.#number = number;
  }

  #holds(chunk: number): boolean {
    const first = chunk % VOLUMES;
    if (this.#number === first) return true;
    return this.#number === (first + 1) % VOLUMES && chunk % MISSING_EVERY !== 7;
  }

  override has(kind: Kind, id: Uint8Array): boolean {
    return kind === 'content' && this.#holds(chunkOf(id));
  }

  override typeOf(): number {
    return RecordType.chunk;
  }

  override held(_kind: Kind, id: Uint8Array): Promise<Held> {
    return Promise.resolve({ id, type: RecordType.chunk, payload_bytes: 65_536, put_s: 0 });
  }

  override listIds(kind: Kind, after: Uint8Array | undefined, into: Buffer): Promise<number> {
    if (kind !== 'content') return Promise.resolve(0);
    let count = 0;
    for (let chunk = after === undefined ? 0 : chunkOf(after) + 1; chunk < CHUNKS; chunk++) {
      if (!this.#holds(chunk)) continue;
      into.writeUIntBE(chunk * STEP, count * 32, 6);
      if (++count === into.length / 32) break;
    }
    return Promise.resolve(count);
  }
}

const chunkOf = (id: Uint8Array): number => Math.round(Buffer.from(id).readUIntBE(0, 6) / STEP);

const members = Array.from({ length: VOLUMES }, (_, number) => ({ volume: new MadeUpVolume(number) }));
const set = await VolumeSet.open({ members, replication_factor: 2, signal });
const planner = new Planner({ set, queue: new RepairQueue({ capacity: 1024 }) });
const before_bytes = process.memoryUsage().rss;
const began_us = process.cpuUsage();
const report = await planner.plan(signal);
const used = process.cpuUsage(began_us);
const seconds = ((used.user + used.system) / 1e6).toFixed(1);
const extra_mib = ((process.memoryUsage().rss - before_bytes) / 2 ** 20).toFixed(0);
process.stdout.write(
  `${report.records} chunks, ${report.deficit} lack a copy: ${seconds} s of CPU, ${extra_mib} MiB more\n`,
);
