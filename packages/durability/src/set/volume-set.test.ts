import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { suite, test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { MemoryVolume, ObjectStore, RecordType, type Held, type NewRecord } from '@ron/cas';
import { isRonError, RonError } from '@ron/kernel';
import { faulty, type Faulty } from '../testing/faulty-volume.ts';
import { eventually } from '@ron/testkit';
import { VolumeSet, type Fault, type VolumeSetInit } from './volume-set.ts';

const { signal } = new AbortController();
const FULL = (): Error => new RonError('storage_full', 'no room');
const READ_ONLY = (): Error => new RonError('not_ready', 'the disk is read-only');

function chunk(text: string): NewRecord {
  const payload = Buffer.from(text);
  return { type: RecordType.chunk, id: blake3(payload), payload };
}

const object = (text: string): NewRecord => ({ ...chunk(text), type: RecordType.object, meta: Buffer.from('a/b') });
const mark = (type: number, of: NewRecord): NewRecord => ({ type, id: of.id, payload: new Uint8Array(0) });

interface Opened {
  readonly set: VolumeSet;
  readonly volumes: readonly Faulty[];
  readonly faults: Fault[];
}

async function open(count: number, init: Partial<VolumeSetInit> = {}): Promise<Opened> {
  const volumes = Array.from({ length: count }, (_, index) =>
    faulty(new MemoryVolume({ name: `v${index}`, bytes_max: 64 << 20 })),
  );
  const faults: Fault[] = [];
  const members = volumes.map(({ volume }) => ({ volume }));
  const onFault = (fault: Fault): void => void faults.push(fault);
  return { set: await VolumeSet.open({ members, onFault, signal, ...init }), volumes, faults };
}

/** The volumes that have it. */
const holders = ({ volumes }: Opened, record: NewRecord): Faulty[] =>
  volumes.filter(({ volume }) => volume.has('content', record.id));

async function collect(set: VolumeSet, ids: readonly Uint8Array[]): Promise<string[]> {
  const texts: string[] = [];
  for await (const batch of set.getMany(ids, signal))
    for (const each of batch) texts.push(Buffer.from(each).toString());
  return texts;
}

suite('writing', () => {
  test('a new object is hidden until enough volumes have it, or its put has ended', async () => {
    const opened = await open(2, { replication_factor: 2, lag_ms: 10_000 });
    const { set, volumes } = opened;
    const [fast, slow] = volumes as [Faulty, Faulty];
    const record = object('new');
    const gate = Promise.withResolvers<void>();
    slow.delay = () => gate.promise;
    const isVisible = async (): Promise<boolean[]> => [
      set.has('object', record.id),
      set.getNow('object', record.id) !== undefined,
      (await set.get('object', record.id, signal)) !== undefined,
      (await set.inventory('object', undefined, 10)).length === 1,
      set.isDurable('object', record.id),
    ];
    const put = set.put([record], signal);
    await eventually('the fast volume has it', () => fast.inner.has('object', record.id));
    // MemoryVolume has no getNow.
    assert.deepEqual(await isVisible(), [false, false, false, false, false]);
    assert.ok(set.knowsObject(record.id), 'it is not garbage');
    const again = set.put([record], signal);
    gate.resolve();
    await Promise.all([put, again]);
    assert.deepEqual(await isVisible(), [true, false, true, true, true]);
    // A put of a known object hides nothing.
    slow.delay = () => Promise.withResolvers<void>().promise;
    void set.put([record], signal);
    assert.ok(set.has('object', record.id));
  });

  test('a new object that one volume has is visible when its put has failed', async () => {
    const opened = await open(2, { replication_factor: 2 });
    const record = object('half');
    opened.volumes[1]!.fail('put', READ_ONLY);
    await assert.rejects(opened.set.put([record], signal), (error) => isRonError(error, 'not_ready'));
    assert.ok(opened.set.has('object', record.id) && !opened.set.isDurable('object', record.id));
  });

  test('each record has the configured copies, and the receipt reports it', async () => {
    const opened = await open(5, { replication_factor: 3 });
    for (let index = 0; index < 50; index++) {
      const record = object(`object ${index}`);
      await opened.set.put([record], signal);
      assert.equal(holders(opened, record).length, 3);
      assert.equal(opened.set.copiesOf('object', record.id), 3);
      assert.ok(opened.set.isDurable('object', record.id));
    }
  });

  for (const [name, error] of [
    ['full', FULL],
    ['read-only', READ_ONLY],
    ['broken', () => new Error('EIO')],
  ] as const) {
    test(`a volume that is ${name} is replaced by the next one`, async () => {
      const opened = await open(4, { replication_factor: 2 });
      opened.volumes[1]!.fail('put', error);
      for (let index = 0; index < 40; index++) {
        const record = chunk(`chunk ${index}`);
        await opened.set.put([record], signal);
        assert.equal(holders(opened, record).length, 2);
      }
      assert.ok(opened.volumes[1]!.calls.get('put')! <= 2, 'a volume that failed is left alone for a while');
      assert.notEqual(opened.set.member('v1').view.condition, 'ok');
      assert.equal(opened.set.state.condition, 'ok', 'three are left');
    });
  }

  test('fewer than write_min is storage_full when one is full, else not_ready', async () => {
    for (const [error, code] of [
      [FULL, 'storage_full'],
      [READ_ONLY, 'not_ready'],
    ] as const) {
      const opened = await open(3, { replication_factor: 2 });
      for (const volume of opened.volumes.slice(1)) volume.fail('put', error);
      for (let attempt = 0; attempt < 2; attempt++) {
        await assert.rejects(opened.set.put([chunk('a')], signal), (thrown) => isRonError(thrown, code));
      }
      assert.ok(!opened.set.isDurable('content', chunk('a').id), 'one copy is not enough');
      assert.notEqual(opened.set.state.condition, 'ok');
    }
  });

  test('with write_min 1 of 2, one copy is enough, and the receipt reports it', async () => {
    const opened = await open(2, { replication_factor: 2, write_min: 1 });
    opened.volumes[0]!.fail('put', READ_ONLY);
    await opened.set.put([object('a')], signal);
    assert.equal(opened.set.copiesOf('object', object('a').id), 1);
  });

  test('a slow volume does not delay a write that enough others have', async () => {
    const opened = await open(2, { replication_factor: 2, write_min: 1, lag_ms: 5 });
    const gate = Promise.withResolvers<void>();
    opened.volumes[0]!.delay = () => gate.promise;
    await opened.set.put([chunk('a')], signal);
    assert.equal(holders(opened, chunk('a')).length, 1);
    gate.resolve();
  });

  test('a slow volume gets the original chunks of an object, even after a long delay', async () => {
    const opened = await open(2, { replication_factor: 2, write_min: 1, lag_ms: 1 });
    const gate = Promise.withResolvers<void>();
    opened.volumes[0]!.delay = () => gate.promise;
    const store = new ObjectStore({ volume: opened.set, cache_bytes: 0 });
    const writer = store.writer();
    await writer.write(randomBytes(40 * 65_536), signal);
    await writer.checkpoint(signal);
    gate.resolve();
    const { volume } = opened.volumes[0]!;
    const late = (): Promise<Held[]> => volume.inventory('content', undefined, 100);
    for (let tries = 0; tries < 1000 && (await late()).length < 39; tries++) await new Promise(setImmediate);
    const ids = (await late()).map(({ id }) => id);
    assert.equal(ids.length, 39);
    // It throws if the bytes do not match the hash.
    for (const id of ids) assert.ok(await volume.get('content', id, signal));
    writer.abort();
  });

  test('a record with enough copies is not written again, one with too few is completed', async () => {
    const opened = await open(3, { replication_factor: 2 });
    await opened.set.put([chunk('a')], signal);
    const writes = (): number => opened.volumes.reduce((sum, each) => sum + (each.calls.get('put') ?? 0), 0);
    const before = writes();
    await opened.set.put([chunk('a')], signal);
    assert.equal(writes(), before);
    opened.set.lifecycle.lose(holders(opened, chunk('a'))[0]!.volume.name, 'test');
    assert.ok(!opened.set.isDurable('content', chunk('a').id));
    await opened.set.put([chunk('a')], signal);
    assert.ok(opened.set.isDurable('content', chunk('a').id));
    assert.equal(writes(), before + 1);
  });

  test('no two copies in one domain while there are enough', async () => {
    const members = Array.from({ length: 6 }, (_, index) => {
      const memory = new MemoryVolume({ name: `v${index}`, bytes_max: 1e6 });
      return { volume: new Proxy(memory, { get: (target, name) => proxied(target, name, `d${index % 2}`) }) };
    });
    const set = await VolumeSet.open({ members, replication_factor: 2, signal });
    for (let index = 0; index < 30; index++) {
      await set.put([chunk(`${index}`)], signal);
      const domains = set.holdersOf('content', chunk(`${index}`).id).map((member) => member.domain);
      assert.deepEqual(domains.toSorted(), ['d0', 'd1']);
    }
  });

  test('a put whose signal is aborted already is refused and writes nothing', async () => {
    const opened = await open(2);
    await assert.rejects(opened.set.put([chunk('a')], AbortSignal.abort(new Error('gone'))), /gone/);
    assert.equal(holders(opened, chunk('a')).length, 0);
  });
});

function proxied(target: MemoryVolume, name: string | symbol, domain: string): unknown {
  if (name === 'domain') return domain;
  const value: unknown = Reflect.get(target, name);
  return typeof value === 'function' ? value.bind(target) : value;
}

suite('reading', () => {
  test('continues with another copy when one fails, and reports it', async () => {
    for (const error of [() => new RonError('integrity', 'damaged'), () => new Error('EIO')]) {
      const opened = await open(3, { replication_factor: 2 });
      await opened.set.put([chunk('a')], signal);
      const [first] = opened.set.holdersOf('content', chunk('a').id);
      const broken = opened.volumes.find(({ volume }) => volume.name === first!.name)!;
      broken.fail('get', error);
      const record = await opened.set.get('content', chunk('a').id, signal);
      assert.equal(Buffer.from(record!.payload).toString(), 'a');
      assert.deepEqual(
        opened.faults.map((fault) => fault.volume),
        [first!.id],
      );
    }
  });

  test('continues with another copy when a volume hangs', async () => {
    const opened = await open(3, { replication_factor: 2, read_lag_ms: 10 });
    const records = Array.from({ length: 20 }, (_, index) => chunk(`chunk ${index}`));
    for (const record of records) await opened.set.put([record], signal);
    opened.volumes[1]!.hangs = true;
    const ids = records.map((record) => record.id);
    const texts = records.map((record) => Buffer.from(record.payload).toString());
    assert.deepEqual(await collect(opened.set, ids), texts);
    for (const id of ids) assert.ok(await opened.set.get('content', id, signal));
    assert.ok(opened.faults.every((fault) => /took too long/.test(fault.reason)) && opened.faults.length > 0);
  });

  test('fails with integrity when no intact copy is left, and is undefined for an unknown id', async () => {
    const opened = await open(2, { replication_factor: 2 });
    await opened.set.put([chunk('a')], signal);
    for (const volume of opened.volumes) volume.fail('get', () => new RonError('integrity', 'damaged'));
    await assert.rejects(opened.set.get('content', chunk('a').id, signal), (error) => isRonError(error, 'integrity'));
    assert.equal(await opened.set.get('content', chunk('b').id, signal), undefined);
  });

  test('many contents arrive in order from all volumes, even if some fail on the way', async () => {
    const opened = await open(5, { replication_factor: 2 });
    const records = Array.from({ length: 150 }, (_, index) => chunk(`chunk ${index}`));
    for (const record of records) await opened.set.put([record], signal);
    const ids = records.map((record) => record.id);
    const texts = records.map((record) => Buffer.from(record.payload).toString());
    assert.deepEqual(await collect(opened.set, ids), texts);
    opened.volumes[0]!.fail('getMany', () => new Error('EIO'));
    opened.volumes[2]!.fail('getMany', () => new RonError('integrity', 'damaged'));
    assert.deepEqual(await collect(opened.set, ids), texts);
    assert.ok(opened.faults.length > 0);
    opened.set.lifecycle.lose('v3', 'test');
    assert.deepEqual(await collect(opened.set, ids.toReversed()), texts.toReversed());
  });

  test('many contents of which one is missing end with not_found', async () => {
    const { set } = await open(3);
    await set.put([chunk('a')], signal);
    await assert.rejects(collect(set, [chunk('a').id, chunk('no').id]), (error) => isRonError(error, 'not_found'));
  });

  test('the inventory has each id once, in order, from anywhere', async () => {
    const { set } = await open(4, { replication_factor: 2 });
    const records = Array.from({ length: 60 }, (_, index) => chunk(`${index}`));
    for (const record of records) await set.put([record], signal);
    const sorted = records.map((record) => Buffer.from(record.id).toString('hex')).toSorted();
    const listed: string[] = [];
    for (let after: Uint8Array | undefined; ;) {
      const page = await set.inventory('content', after, 7);
      listed.push(...page.map((held) => Buffer.from(held.id).toString('hex')));
      after = page.at(-1)?.id;
      if (after === undefined) break;
    }
    assert.deepEqual(listed, sorted);
  });
});

suite('pins and removals', () => {
  test('are written to all volumes', async () => {
    const opened = await open(4, { replication_factor: 2 });
    await opened.set.put([object('a')], signal);
    await opened.set.put([mark(RecordType.pin, object('a'))], signal);
    assert.ok(opened.set.isPinned(object('a').id));
    assert.ok(opened.volumes.every(({ volume }) => volume.isPinned(object('a').id)));
    await opened.set.put([mark(RecordType.remove, object('a'))], signal);
    assert.ok(!opened.set.has('object', object('a').id));
    assert.equal(await opened.set.get('object', object('a').id, signal), undefined);
    assert.deepEqual(await opened.set.inventory('object', undefined, 10), []);
    assert.equal(opened.set.removals.size, 0, 'nothing is kept of it');
  });

  test('a volume that cannot write a removal becomes stale, and a removal that no volume writes is refused', async () => {
    const opened = await open(3, { replication_factor: 2 });
    await opened.set.put([object('a')], signal);
    opened.volumes[0]!.fail('put', READ_ONLY);
    await opened.set.put([mark(RecordType.remove, object('a'))], signal);
    assert.deepEqual(
      opened.set.views.map((view) => view.isCurrent),
      [false, true, true],
    );
    const { current } = opened.set.membership.roster;
    assert.deepEqual(
      current.map((id) => opened.set.member(id).name),
      ['v1', 'v2'],
    );
    await opened.set.put([object('b')], signal);
    for (const volume of opened.volumes) volume.fail('put', READ_ONLY);
    await assert.rejects(opened.set.put([mark(RecordType.remove, object('b'))], signal), (error) =>
      isRonError(error, 'not_ready'),
    );
    assert.ok(opened.set.has('object', object('b').id));
  });
});
