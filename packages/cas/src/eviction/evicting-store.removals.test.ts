/** Removals of a cache take short turns and bounded memory, and a name is not kept while its removal is in progress. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { NEVER, RonError } from '@ron/kernel';
import { formatAddress, type Address } from '@ron/proto';
import { ObjectStore } from '../objects/object-store.ts';
import { MemoryVolume } from '../volume/memory-volume.ts';
import { RecordType } from '../volume/record-types.ts';
import type { NewRecord, VolumeState } from '../volume/volume.ts';
import { EvictingStore, type NoteTarget } from './evicting-store.ts';

/** A volume that can fail, or wait before it writes. */
class TestVolume extends MemoryVolume {
  isFailing = false;
  gate: Promise<void> | undefined;
  removed = 0;

  override get state(): VolumeState {
    return this.isFailing ? { condition: 'failed', reason: 'the disk failed' } : super.state;
  }

  override async put(records: readonly NewRecord[], signal: AbortSignal): Promise<void> {
    await this.gate;
    if (this.isFailing) throw new RonError('not_ready', 'the disk failed');
    this.removed += records.filter(({ type }) => type === RecordType.unnote).length;
    await super.put(records, signal);
  }
}

const BODY = Buffer.from('body');
const address = formatAddress(blake3(BODY));
const encode = ({ name, size }: NoteTarget): Buffer => Buffer.from(`${name} ${address} ${size}`);
function parse(note: Uint8Array): NoteTarget | undefined {
  const [name, target, size] = Buffer.from(note).toString().split(' ');
  return { name: name!, address: target as Address, size: Number(size) };
}

async function open() {
  const volume = new TestVolume({ bytes_max: 1e8 });
  const cache = new EvictingStore({
    store: new ObjectStore({ volume, cache_bytes: 0 }),
    compactor: { run: () => Promise.reject(new Error('there is room')) },
    bytes_max: 1e8,
    names_bytes_max: 1e7,
    segment_bytes: 0,
    parse,
  });
  await cache.pass(NEVER);
  const keep = (name: string, isStored = false): Promise<boolean> => {
    const target = { name, address, size: BODY.length };
    return cache.keep({ ...target, note: encode(target), bytes: isStored ? undefined : BODY }, NEVER);
  };
  return { volume, cache, keep };
}

test('a removal makes all names unreadable at once, but examines them in steps', async () => {
  const { cache, keep } = await open();
  const names = Array.from({ length: 3000 }, (_, at) => `x/${at}`);
  await Promise.all(names.map((name) => keep(name)));
  await keep('y');
  let examined = 0;
  const removal = cache.removeWhere((name) => {
    examined += 1;
    return name.startsWith('x/');
  }, NEVER);
  assert.ok(examined < 2000, `${examined} names were examined in one step`);
  assert.ok(!cache.has('x/2999') && cache.has('y'));
  assert.equal(await keep('x/2999'), false, 'its removal is not written yet');
  assert.ok(await keep('x/new'), 'a name that is set after the removal');
  const stopping = new AbortController();
  const running = cache.run(stopping.signal);
  assert.equal(await removal, 3000);
  stopping.abort();
  await running;
  assert.deepEqual([cache.size, cache.has('x/new'), cache.has('y')], [2, true, true]);
  assert.ok(await keep('x/2999'));
});

test('removals in progress are bounded, and one whose caller has left goes on', async () => {
  const { cache, keep } = await open();
  await Promise.all(Array.from({ length: 1500 }, (_, at) => keep(`${at}`)));
  const leaving = new AbortController();
  const others = Array.from({ length: 63 }, () => cache.removeWhere(() => false, NEVER));
  const removal = cache.removeWhere((name) => name !== '7', leaving.signal);
  await assert.rejects(
    cache.removeWhere(() => true, NEVER),
    { code: 'busy' },
  );
  leaving.abort(new RonError('canceled', 'the caller left'));
  await assert.rejects(removal, { code: 'canceled' });
  assert.equal(cache.size, 1);
  await cache.pass(NEVER);
  await Promise.all(others);
});

test('names that a failed disk refuses take no memory', async () => {
  const { volume, cache, keep } = await open();
  await keep('before');
  volume.isFailing = true;
  for (let at = 0; at < 100; at++) assert.equal(await keep(`${at}`).catch(() => false), false);
  volume.isFailing = false;
  await cache.pass(NEVER);
  assert.ok(volume.removed <= 1, `${volume.removed} names waited for their removal`);
  assert.ok(cache.has('before') && (await keep('1')));
});

test('a name is kept again only after its removal, and a keep in progress is void', async () => {
  const { cache, keep } = await open();
  await keep('a');
  const inProgress = keep('b');
  for (const name of ['a', 'b', 'unknown']) cache.remove(name);
  assert.ok(!cache.has('a'));
  assert.deepEqual([await inProgress, await keep('a')], [false, false]);
  await cache.pass(NEVER);
  assert.equal(await cache.find('b', NEVER), undefined);
  assert.ok(await keep('a'));
  assert.ok(await cache.find('a', NEVER));
});

test('an object whose removal is being written gets no new name', async () => {
  const { volume, cache, keep } = await open();
  await keep('a');
  cache.remove('a');
  const { promise, resolve } = Promise.withResolvers<void>();
  volume.gate = promise;
  const pass = cache.pass(NEVER);
  volume.gate = undefined;
  const kept = keep('b', true);
  assert.equal(await kept, false);
  resolve();
  await pass;
  assert.equal(await cache.find('b', NEVER), undefined);
});
