import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { RecordType, type NewRecord } from '@ron/cas';
import { Pacing } from './pacing.ts';
import { Planner } from './planner.ts';
import { RepairQueue } from './repair-queue.ts';
import { RepairWorker } from './repair-worker.ts';
import { Scrubber } from './scrub.ts';
import { Striper } from './striper.ts';
import { Directories } from './testing/directories.ts';
import type { Fault, VolumeSet } from './volume-set.ts';

const { signal } = new AbortController();
const pace = (): Promise<void> => Promise.resolve();
const NAMES = ['a', 'b', 'c', 'd', 'e', 'f'];

function chunk(payload: Buffer): NewRecord {
  return { type: RecordType.chunk, id: blake3(payload), payload };
}

async function fill(set: VolumeSet): Promise<Uint8Array[]> {
  const records = Array.from({ length: 12 }, () => chunk(randomBytes(5000)));
  const object = { ...chunk(randomBytes(300)), type: RecordType.object, meta: Buffer.from('text/plain') };
  await set.put([...records, object], signal);
  const ids = records.map((record) => record.id);
  await new Striper({ set, data_shards: 4, parity_shards: 2, pace }).make(ids.slice(0, 4), signal);
  return [...ids, object.id];
}

/** Every segment of a volume, and where its records' bytes lie. */
function segments(directories: Directories, name: string): string[] {
  const dir = join(directories.dir(name), 'segments');
  return readdirSync(dir).map((file) => join(dir, file));
}

async function heal(set: VolumeSet, faults: readonly Fault[]): Promise<void> {
  const queue = new RepairQueue();
  const planner = new Planner({ set, queue });
  const worker = new RepairWorker({ set, queue, pacing: new Pacing({ rate_bytes_per_s: 1e9 }) });
  for (const fault of faults) planner.file(fault);
  while (queue.depth > 0) await worker.work((await queue.take(signal))!, signal);
  await planner.plan(signal);
  while (queue.depth > 0) await worker.work((await queue.take(signal))!, signal);
}

test('a pass reads every record of every kind on every volume, and finds nothing where there is nothing', async () => {
  using directories = new Directories();
  await using set = await directories.open(NAMES, { replication_factor: 2 });
  await fill(set);
  const faults: Fault[] = [];
  const read: number[] = [];
  const scrubber = new Scrubber({
    set,
    pace: (bytes) => Promise.resolve(void read.push(bytes)),
    onFault: (fault) => faults.push(fault),
  });
  await scrubber.run(signal);
  assert.deepEqual(faults, []);
  for (const member of set.members) {
    let records = 0;
    for (const kind of ['content', 'object', 'stripe', 'note'] as const) {
      records += (await member.volume.inventory(kind, undefined, 1000)).length;
    }
    const state = scrubber.states.get(member.name)!;
    // The note about the pass itself came while it was read, or after.
    assert.ok(records - state.records <= 1, `${state.records} of ${records} on ${member.name}`);
    assert.deepEqual([state.kind, state.bad, state.pass], [undefined, 0, 1]);
  }
  assert.ok(read.length > 30);
});

test('a byte that flipped anywhere in a record is found and mended: copies, parity, stripes, objects', async () => {
  using directories = new Directories();
  let ids: Uint8Array[];
  {
    await using set = await directories.open(NAMES, { replication_factor: 2 });
    ids = await fill(set);
  }
  // In one volume at a time, so that there is always something to mend from: a byte in the middle of each record.
  for (const name of NAMES) {
    let flipped = 0;
    for (const file of segments(directories, name)) {
      const bytes = readFileSync(file);
      for (let at = 0; at + 64 <= bytes.length; at += 64) {
        if (bytes.readUInt32LE(at) !== 0x314e4f52) continue;
        const [type, payload_bytes] = [bytes.readUInt8(at + 4), bytes.readUInt32LE(at + 8)];
        if (payload_bytes === 0 || type === RecordType.note) continue;
        bytes[at + 64 + (payload_bytes >> 1)]! ^= 1;
        flipped += 1;
      }
      writeFileSync(file, bytes);
    }
    assert.ok(flipped > 0, name);
    await using set = await directories.open(NAMES, { replication_factor: 2 });
    const faults: Fault[] = [];
    await new Scrubber({ set, pace, onFault: (fault) => faults.push(fault) }).run(signal);
    assert.ok(faults.every((fault) => fault.volume === name));
    assert.ok(
      faults.length > 0 && faults.length <= flipped + 2,
      `${faults.length} of ${flipped} were found on ${name}`,
    );
    await heal(set, faults);
    const again: Fault[] = [];
    await new Scrubber({ set, pace, onFault: (fault) => again.push(fault) }).run(signal);
    assert.deepEqual(again, []);
    const planner = new Planner({ set, queue: new RepairQueue() });
    assert.equal((await planner.plan(signal)).deficit, 0, name);
    for (const id of ids) assert.ok(await set.get('content', id, signal));
  }
});

test('a pass that was interrupted goes on from its last note after a restart, and the next one begins anew', async () => {
  using directories = new Directories();
  const read = new Map<string, number>();
  const scrubberOf = (set: VolumeSet, control?: AbortController): Scrubber =>
    new Scrubber({
      set,
      note_every_bytes: 1,
      onFault: () => assert.fail('nothing is damaged'),
      pace: async () => {
        read.set('all', (read.get('all') ?? 0) + 1);
        if (control !== undefined && read.get('all') === 100) control.abort(new Error('enough'));
      },
    });
  {
    await using set = await directories.open(['a'], { replication_factor: 1 });
    await set.put(
      Array.from({ length: 150 }, (_, index) => chunk(Buffer.from(`chunk ${index}`))),
      signal,
    );
    const control = new AbortController();
    await assert.rejects(scrubberOf(set, control).run(control.signal), /enough/);
  }
  await using set = await directories.open(['a'], { replication_factor: 1 });
  const scrubber = scrubberOf(set);
  read.clear();
  await scrubber.run(signal);
  // Two pages of 64 lines: one was noted.
  assert.ok(read.get('all')! < 150 - 60, `${read.get('all')} were read again`);
  assert.ok(scrubber.states.get('a')!.records >= 150);
  assert.equal(scrubber.states.get('a')!.pass, 1);
  read.clear();
  await scrubber.run(signal);
  assert.ok(read.get('all')! >= 150);
  assert.equal(scrubber.states.get('a')!.pass, 2);
});
