import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { RecordType, type NewRecord, type Volume } from '@ron/cas';
import { Pacing } from '../repair/pacing.ts';
import { Planner } from '../repair/planner.ts';
import { RepairQueue } from '../repair/repair-queue.ts';
import { RepairWorker } from '../repair/repair-worker.ts';
import { Scrubber } from './scrub.ts';
import { Striper } from '../stripes/striper.ts';
import { Directories } from '../testing/directories.ts';
import { faulty } from '../testing/faulty-volume.ts';
import { VolumeSet, type Fault } from '../set/volume-set.ts';

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

test('a pass reads every record of every kind on every volume, and reports no false damage', async () => {
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
    const state = scrubber.states.get(member.id)!;
    const { used_bytes } = member.volume.stats();
    // The note about the pass itself came after.
    assert.ok(state.bytes >= used_bytes - 1000, `${state.bytes} of ${used_bytes} on ${member.name}`);
    assert.deepEqual([state.isRunning, state.bad, state.pass], [false, 0, 1]);
  }
  assert.ok(read.length >= 6 * 7);
});

test('a flipped byte anywhere in a record is found and repaired: copies, parity, stripes, objects', async () => {
  using directories = new Directories();
  let ids: Uint8Array[];
  {
    await using set = await directories.open(NAMES, { replication_factor: 2 });
    ids = await fill(set);
  }
  // In one volume at a time, so that an intact copy is left: a byte in the middle of each record.
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
    assert.ok(faults.every((fault) => fault.volume === set.member(name).id));
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

test('an interrupted pass continues from its last note after a restart, and the next one starts over', async () => {
  using directories = new Directories();
  const read = new Map<string, number>();
  const scrubberOf = (set: VolumeSet, control?: AbortController): Scrubber =>
    new Scrubber({
      set,
      note_every_bytes: 1,
      onFault: () => assert.fail('nothing is damaged'),
      pace: async () => {
        read.set('all', (read.get('all') ?? 0) + 1);
        if (control !== undefined && read.get('all') === 3) control.abort(new Error('enough'));
      },
    });
  {
    await using set = await directories.open(['a'], { replication_factor: 1 });
    await set.put(
      Array.from({ length: 80 }, () => chunk(randomBytes(65_536))),
      signal,
    );
    const control = new AbortController();
    await assert.rejects(scrubberOf(set, control).run(control.signal), /enough/);
  }
  await using set = await directories.open(['a'], { replication_factor: 1 });
  const scrubber = scrubberOf(set);
  read.clear();
  await scrubber.run(signal);
  // Five stretches of the log: two were noted.
  const total = read.get('all')!;
  assert.deepEqual(
    [scrubber.states.get(set.member('a').id)!.pass, scrubber.states.get(set.member('a').id)!.records >= 80],
    [1, true],
  );
  assert.ok(scrubber.states.get(set.member('a').id)!.bytes >= 80 * 65_536);
  read.clear();
  await scrubber.run(signal);
  assert.ok(read.get('all')! >= total + 2, `${total} steps were left, ${read.get('all')} are all`);
  assert.equal(scrubber.states.get(set.member('a').id)!.pass, 2);
});

const EMPTY = new Uint8Array(0);

/** The places of records of a type in a segment file. */
function recordsOf(bytes: Buffer, type: number): number[] {
  const found: number[] = [];
  for (let at = 0; at + 64 <= bytes.length; at += 64) {
    if (bytes.readUInt32LE(at) === 0x314e4f52 && bytes.readUInt8(at + 4) === type) found.push(at);
  }
  return found;
}

/** Flips a byte of every record of a type on a volume; how many there were. */
function rot(directories: Directories, name: string, type: number, offset: number): number {
  let count = 0;
  for (const file of segments(directories, name)) {
    const bytes = readFileSync(file);
    for (const at of recordsOf(bytes, type)) {
      bytes[at + offset]! ^= 1;
      count += 1;
    }
    writeFileSync(file, bytes);
  }
  return count;
}

/** The volume, reopened without its index, which it rebuilds from its log. */
async function withoutIndex(directories: Directories, name: string): Promise<Volume> {
  rmSync(join(directories.dir(name), 'index'), { recursive: true });
  return await directories.volume(name);
}

test('damaged pins, removals and notes are found and rewritten, and survive without the index', async () => {
  using directories = new Directories();
  const [kept, gone] = ['kept', 'gone'].map((text) => ({ ...chunk(Buffer.from(text)), type: RecordType.object }));
  {
    await using set = await directories.open(['a', 'b'], { replication_factor: 2 });
    await set.put([kept!, gone!], signal);
    await set.put([{ type: RecordType.pin, id: kept!.id, payload: EMPTY }], signal);
    await set.put([{ type: RecordType.remove, id: gone!.id, payload: EMPTY }], signal);
  }
  for (const type of [RecordType.pin, RecordType.remove]) assert.equal(rot(directories, 'a', type, 20), 1);
  assert.ok(rot(directories, 'a', RecordType.note, 70) > 0);
  {
    await using set = await directories.open(['a', 'b'], { replication_factor: 2 });
    // Its note is damaged, so it is reconciled first.
    assert.equal(await set.reconcileStale(signal), 1);
    const scrubber = new Scrubber({ set, pace, onFault: () => undefined });
    await scrubber.run(signal);
    assert.ok(
      scrubber.states.get(set.member('a').id)!.bad >= 2,
      `${scrubber.states.get(set.member('a').id)!.bad} were found`,
    );
    assert.equal(scrubber.states.get(set.member('b').id)!.bad, 0);
    await scrubber.run(signal);
    assert.equal(scrubber.states.get(set.member('a').id)!.bad, 0, 'nothing is damaged any more');
  }
  await using volume = await withoutIndex(directories, 'a');
  assert.ok(volume.isPinned(kept!.id) && volume.wasRemoved(gone!.id));
});

test('a flipped byte in any place of a segment is found', async () => {
  using directories = new Directories();
  {
    await using set = await directories.open(['a'], { replication_factor: 1 });
    await set.put([{ ...chunk(randomBytes(700)), type: RecordType.object, meta: Buffer.from('text/plain') }], signal);
    await set.put([chunk(randomBytes(300)), { type: RecordType.pin, id: randomBytes(32), payload: EMPTY }], signal);
  }
  const [file] = segments(directories, 'a');
  const whole = readFileSync(file!);
  const types = [RecordType.object, RecordType.chunk, RecordType.pin];
  const places = types.flatMap((type) =>
    recordsOf(whole, type).flatMap((at) => {
      const bytes = 64 + whole.readUInt32LE(at + 8) + whole.readUInt16LE(at + 6);
      return Array.from({ length: Math.ceil(bytes / 13) }, (_, index) => at + index * 13);
    }),
  );
  assert.ok(places.length > 80);
  for (const at of places) {
    const bytes = Buffer.from(whole);
    bytes[at]! ^= 0x10;
    const isOpen = await directories.volume('a');
    writeFileSync(file!, bytes);
    const set = await VolumeSet.open({ members: [{ volume: isOpen }], signal });
    const scrubber = new Scrubber({ set, pace, onFault: () => undefined });
    await scrubber.run(signal);
    assert.ok(scrubber.states.get(set.member('a').id)!.bad > 0, `byte ${at} was not found`);
    await set.close();
    rmSync(directories.dir('a'), { recursive: true });
    mkdirSync(join(directories.dir('a'), 'segments'), { recursive: true });
    writeFileSync(file!, whole);
  }
});

test('a volume that cannot be read ends its own pass only, is reported, and continues later', async () => {
  using directories = new Directories();
  const volumes = await Promise.all(['a', 'b', 'c'].map((name) => directories.volume(name)));
  const broken = faulty(volumes[1]!);
  const members = [{ volume: volumes[0]! }, { volume: broken.volume }, { volume: volumes[2]! }];
  await using set = await VolumeSet.open({ members, replication_factor: 3, signal });
  await set.put([chunk(randomBytes(5000))], signal);
  broken.fail('scrub', () => new Error('EIO'));
  const scrubber = new Scrubber({ set, pace, onFault: () => undefined });
  await assert.rejects(scrubber.run(signal), /not everything could be read: b: EIO/);
  const passes = (): boolean[] => ['a', 'b', 'c'].map((name) => scrubber.states.get(set.member(name).id)!.isRunning);
  assert.deepEqual(passes(), [false, true, false]);
  assert.match(scrubber.states.get(set.member('b').id)!.problem!, /EIO/);
  broken.fail('scrub', undefined);
  await scrubber.run(signal);
  assert.deepEqual(passes(), [false, false, false]);
  assert.deepEqual(
    [scrubber.states.get(set.member('b').id)!.pass, scrubber.states.get(set.member('b').id)!.problem],
    [1, undefined],
  );
});

test('a volume that lost a removal and its index does not restore the object', async () => {
  using directories = new Directories();
  const gone = { ...chunk(Buffer.from('gone')), type: RecordType.object };
  {
    await using set = await directories.open(['a', 'b'], { replication_factor: 2 });
    await set.put([gone], signal);
    await set.put([{ type: RecordType.remove, id: gone.id, payload: EMPTY }], signal);
    await set.put([chunk(randomBytes(10))], signal);
  }
  assert.equal(rot(directories, 'a', RecordType.remove, 20), 1);
  rmSync(join(directories.dir('a'), 'index'), { recursive: true });
  {
    await using set = await directories.open(['a', 'b'], { replication_factor: 2 });
    assert.ok(set.member('a').volume.has('object', gone.id), 'it knows no better');
    assert.ok(!set.has('object', gone.id));
  }
  // Also after another start, at which the damage is not met again.
  await using set = await directories.open(['a', 'b'], { replication_factor: 2 });
  assert.ok(!set.has('object', gone.id));
  assert.equal(await set.reconcileStale(signal), 1);
  assert.ok(set.member('a').volume.wasRemoved(gone.id));
});
