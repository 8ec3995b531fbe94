/** The contract of `Volume`, tested on each implementation. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError } from '@ron/kernel';
import { LocalVolume } from './local-volume.ts';
import { MemoryVolume } from './memory-volume.ts';
import { RecordType } from './record-types.ts';
import type { NewRecord, Volume } from './volume.ts';

const signal = new AbortController().signal;

interface Opened {
  volume: Volume;
  [Symbol.asyncDispose](): Promise<void>;
}

const KINDS: Record<string, () => Promise<Opened>> = {
  local: async () => {
    const dir = mkdtempSync(join(tmpdir(), 'ron-volume-'));
    const volume = await LocalVolume.open({ dir, signal, segment_bytes: 1 << 20 });
    return {
      volume,
      [Symbol.asyncDispose]: async () => {
        await volume.close();
        rmSync(dir, { recursive: true });
      },
    };
  },
  memory: async () => {
    const volume = new MemoryVolume({ bytes_max: 8 << 20 });
    return { volume, [Symbol.asyncDispose]: () => volume.close() };
  },
};

function chunk(text: string): NewRecord {
  const payload = Buffer.from(text);
  return { type: RecordType.chunk, id: blake3(payload), payload };
}

function object(text: string): NewRecord {
  return { ...chunk(text), type: RecordType.object, meta: Buffer.from('text/plain') };
}

const textIn = (bytes: Uint8Array | undefined): string | undefined => bytes && Buffer.from(bytes).toString();

const mark = (type: number, of: NewRecord): NewRecord => ({ type, id: of.id, payload: new Uint8Array(0) });

for (const [kind, open] of Object.entries(KINDS)) {
  suite(`a ${kind} volume`, () => {
    test('returns exactly the records that were put', async () => {
      await using opened = await open();
      const { volume } = opened;
      await volume.put([chunk('a'), object('b')], signal);
      assert.equal(Buffer.from((await volume.get('content', chunk('a').id, signal))!.payload).toString(), 'a');
      const found = await volume.get('object', object('b').id, signal);
      assert.equal(Buffer.from(found!.meta).toString(), 'text/plain');
      assert.equal(await volume.get('object', chunk('a').id, signal), undefined);
      assert.equal(await volume.get('content', chunk('never').id, signal), undefined);
      assert.ok(volume.isDurable('content', chunk('a').id) && volume.has('object', object('b').id));
    });

    test('a small object is content too', async () => {
      await using opened = await open();
      await opened.volume.put([object('b')], signal);
      assert.ok(await opened.volume.get('content', object('b').id, signal));
    });

    test('returns many contents in the requested order', async () => {
      await using opened = await open();
      const records = Array.from({ length: 40 }, (_, index) => chunk(`chunk ${index} ${'x'.repeat(index * 10)}`));
      for (const record of records) await opened.volume.put([record], signal, 'later');
      await opened.volume.sync(signal);
      const wanted = [...records.slice(10, 30), ...records.slice(0, 5), records[39]!, records[2]!];
      const texts: string[] = [];
      for await (const batch of opened.volume.getMany(
        wanted.map((record) => record.id),
        signal,
      )) {
        for (const bytes of batch) texts.push(Buffer.from(bytes).toString());
      }
      assert.deepEqual(
        texts,
        wanted.map((record) => Buffer.from(record.payload).toString()),
      );
    });

    test('batches of several readers at once do not share memory', async () => {
      await using opened = await open();
      const records = Array.from({ length: 64 }, (_, index) => chunk(`${index} `.repeat(10_000)));
      for (const record of records) await opened.volume.put([record], signal, 'later');
      await opened.volume.sync(signal);
      const readers = [0, 1, 2].map((start) => {
        const wanted = records.slice(start * 20, start * 20 + 20);
        const ids = wanted.map((record) => record.id);
        return { wanted, batches: opened.volume.getMany(ids, signal)[Symbol.asyncIterator]() };
      });
      for (;;) {
        const steps = await Promise.all(readers.map(({ batches }) => batches.next()));
        if (steps.every(({ done }) => done)) break;
        for (const [index, { value, done }] of steps.entries()) {
          if (done) continue;
          for (const bytes of value) assert.deepEqual(Buffer.from(bytes), readers[index]!.wanted.shift()!.payload);
        }
      }
      assert.ok(readers.every(({ wanted }) => wanted.length === 0));
    });

    test('reading many contents with one missing ends with not_found', async () => {
      await using opened = await open();
      await opened.volume.put([chunk('a')], signal);
      await assert.rejects(
        async () => {
          for await (const bytes of opened.volume.getMany([chunk('a').id, chunk('no').id], signal)) assert.ok(bytes);
        },
        (error) => isRonError(error, 'not_found'),
      );
    });

    test('removes objects and keeps the last state of pins', async () => {
      await using opened = await open();
      const { volume } = opened;
      await volume.put([object('b')], signal);
      await volume.put([mark(RecordType.pin, object('b'))], signal);
      assert.ok(volume.isPinned(object('b').id));
      await volume.put([mark(RecordType.unpin, object('b'))], signal);
      assert.ok(!volume.isPinned(object('b').id));
      await volume.put([mark(RecordType.remove, object('b'))], signal);
      assert.equal(await volume.get('object', object('b').id, signal), undefined);
      assert.ok(!volume.has('object', object('b').id));
      await volume.put([object('b')], signal);
      assert.ok(volume.has('object', object('b').id), 'a removed object can be put again');
    });

    test('removes notes, and keeps the last state of each', async () => {
      await using opened = await open();
      const { volume } = opened;
      const note = (text: string): NewRecord => ({
        ...chunk('the id'),
        type: RecordType.note,
        payload: Buffer.from(text),
      });
      const textOf = async (): Promise<string | undefined> =>
        textIn((await volume.get('note', note('').id, signal))?.payload);
      const listed = async (): Promise<number> => (await volume.inventory('note', undefined, 10)).length;
      await volume.put([note('first')], signal);
      await volume.put([note('second'), mark(RecordType.unnote, note(''))], signal);
      assert.ok(!volume.has('note', note('').id) && !volume.isDurable('note', note('').id));
      assert.deepEqual([await textOf(), await listed()], [undefined, 0]);
      await volume.put([note('third')], signal);
      assert.deepEqual([await textOf(), await listed()], ['third', 1]);
      // The content with the same id is another record.
      await volume.put([chunk('the id'), mark(RecordType.unnote, note(''))], signal);
      assert.ok(volume.has('content', note('').id) && !volume.has('note', note('').id));
    });

    test('lists ids in order, from any id', async () => {
      await using opened = await open();
      const records = Array.from({ length: 25 }, (_, index) => chunk(`${index}`));
      await opened.volume.put(records, signal);
      const sorted = records.map((record) => Buffer.from(record.id)).toSorted((a, b) => Buffer.compare(a, b));
      const first = await opened.volume.inventory('content', undefined, 10);
      const rest = await opened.volume.inventory('content', first.at(-1)!.id, 100);
      assert.deepEqual(
        [...first, ...rest].map(({ id }) => Buffer.from(id).toString('hex')),
        sorted.map((id) => id.toString('hex')),
      );
    });

    test('lists the ids of the inventory, and describes each', async () => {
      await using opened = await open();
      const { volume } = opened;
      const records = Array.from({ length: 25 }, (_, index) => object(`${index}`));
      await volume.put(records, signal);
      await volume.put([mark(RecordType.remove, records[3]!)], signal);
      for (const table of ['content', 'object'] as const) {
        const expected = await volume.inventory(table, undefined, 100);
        const into = Buffer.alloc(10 * 32);
        const listed: Buffer[] = [];
        for (let after: Uint8Array | undefined; ;) {
          const count = await volume.listIds(table, after, into);
          for (let at = 0; at < count; at++) listed.push(Buffer.from(into.subarray(at * 32, at * 32 + 32)));
          if (count === 0) break;
          after = listed.at(-1);
        }
        assert.deepEqual(
          listed,
          expected.map((held) => Buffer.from(held.id)),
        );
        for (const held of expected) assert.deepEqual(await volume.held(table, held.id), held);
        assert.equal(await volume.held(table, chunk('never').id), undefined);
      }
    });

    test('a put with an aborted signal is refused', async () => {
      await using opened = await open();
      await assert.rejects(opened.volume.put([chunk('a')], AbortSignal.abort(new Error('gone'))), /gone/);
      assert.ok(!opened.volume.has('content', chunk('a').id));
    });
  });
}

test('memory is bounded, and exceeding it is storage_full', async () => {
  const volume = new MemoryVolume({ bytes_max: 2000 });
  await volume.put([{ ...chunk('a'), payload: Buffer.alloc(1000), id: blake3(Buffer.alloc(1000)) }], signal);
  await assert.rejects(
    volume.put([{ type: RecordType.chunk, id: blake3(Buffer.alloc(1001)), payload: Buffer.alloc(1001) }], signal),
    (error) => isRonError(error, 'storage_full'),
  );
});
