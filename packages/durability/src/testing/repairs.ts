/** Sets of volumes in memory with a planner and a worker, for tests of repair. */
import assert from 'node:assert/strict';
import { blake3 } from '@napi-rs/blake-hash';
import { MemoryVolume, RecordType, type NewRecord } from '@ron/cas';
import { sched } from '@ron/kernel';
import { Pacing } from '../repair/pacing.ts';
import { Planner } from '../repair/planner.ts';
import { RepairQueue } from '../repair/repair-queue.ts';
import { RepairWorker } from '../repair/repair-worker.ts';
import { VolumeSet, type VolumeSetInit } from '../set/volume-set.ts';
import { faulty, type Faulty } from './faulty-volume.ts';

const { signal } = new AbortController();
export const pacing = new Pacing({ rate_bytes_per_s: 1e9, burst_bytes: 1e6 });
export const pace = (): Promise<void> => Promise.resolve();

export function chunk(text: string): NewRecord {
  const payload = Buffer.from(text);
  return { type: RecordType.chunk, id: blake3(payload), payload };
}

export const object = (text: string): NewRecord => ({
  ...chunk(text),
  type: RecordType.object,
  meta: Buffer.from('a/b'),
});
export const mark = (type: number, of: NewRecord): NewRecord => ({ type, id: of.id, payload: new Uint8Array(0) });
export const RECORDS = Array.from({ length: 60 }, (_, index) =>
  index % 3 === 0 ? object(`o ${index}`) : chunk(`c ${index}`),
);

export class Repairs {
  readonly set: VolumeSet;
  readonly queue: RepairQueue;
  readonly planner: Planner;
  readonly worker: RepairWorker;

  constructor(set: VolumeSet, capacity = 256) {
    this.set = set;
    this.queue = new RepairQueue({ capacity });
    this.planner = new Planner({ set, queue: this.queue });
    this.worker = new RepairWorker({ set, queue: this.queue, pacing });
  }

  /** Plans and repairs at the same time, once. */
  async round(): Promise<void> {
    const stop = new AbortController();
    const working = this.worker.run({ stopping: stop.signal, signal });
    await this.planner.plan(signal);
    while (!this.queue.isIdle) await sched.pause('test');
    stop.abort();
    await working;
  }
}

export async function open(
  count: number,
  init: Partial<VolumeSetInit> = {},
): Promise<{ set: VolumeSet; volumes: Faulty[] }> {
  const volumes = Array.from({ length: count }, (_, index) => memory(`v${index}`));
  const members = volumes.map(({ volume }) => ({ volume }));
  const set = await VolumeSet.open({ members, replication_factor: 2, signal, ...init });
  for (const record of RECORDS) await set.put([record], signal);
  return { set, volumes };
}

export const memory = (name: string): Faulty => faulty(new MemoryVolume({ name, bytes_max: 64 << 20 }));
export const kindOf = (record: NewRecord): 'object' | 'content' =>
  record.type === RecordType.object ? 'object' : 'content';

export function assertWhole(set: VolumeSet, copies: number, records: readonly NewRecord[] = RECORDS): void {
  for (const record of records) {
    const holders = set.members.filter((each) => each.isActive && each.holds(kindOf(record), record.id));
    assert.ok(holders.length >= copies, `${record.payload.length} has ${holders.length} copies`);
  }
}
