import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import fc from 'fast-check';
import { BatchMemory, BatchWrite } from './batch-write.ts';
import { recordBytes, recordIn, type RecordInput } from './record.ts';

const SALT = 77;

function recordOf(payload_bytes: number, meta_bytes: number): RecordInput {
  const meta = meta_bytes === 0 ? {} : { meta: randomBytes(meta_bytes) };
  return { type: 1, id: randomBytes(32), payload: randomBytes(payload_bytes), ...meta };
}

test('records of all sizes are at their reported offsets, even in a second write from the same memory', () => {
  const size = fc.oneof(
    fc.nat(300),
    fc.integer({ min: 3000, max: 20_000 }),
    fc.constantFrom(0, 16_256, 16_320, 65_536),
  );
  const sizes = fc.array(fc.record({ payload: size, meta: fc.nat(40) }), { minLength: 1, maxLength: 120 });
  const memory = new BatchMemory();
  fc.assert(
    fc.property(sizes, (all) => {
      const write = new BatchWrite({ segment: 1, offset: 640 }, SALT, 0, memory);
      const records = all.map(({ payload, meta }) => recordOf(payload, meta));
      const places = write.add(records);
      const bytes = Buffer.concat(write.buffers());
      assert.equal(bytes.length, write.bytes);
      for (const [index, { payload, meta, id }] of records.entries()) {
        const at = places[index]!.offset - 640;
        const meta_bytes = meta?.length ?? 0;
        const end = at + 64 + payload.length + meta_bytes;
        const found = recordIn(bytes.subarray(at, end), SALT, payload.length, meta_bytes)!;
        assert.deepEqual(Buffer.from(found.head.id), id);
        assert.deepEqual(Buffer.from(found.payload), payload);
        const padding = bytes.subarray(end, at + recordBytes(payload.length, meta_bytes));
        assert.ok(padding.every((byte) => byte === 0));
      }
    }),
    { numRuns: 60 },
  );
});

test('adjacent small records become one buffer of the write', () => {
  const write = new BatchWrite({ segment: 1, offset: 0 }, SALT, 0, new BatchMemory());
  write.add(Array.from({ length: 64 }, () => recordOf(4096, 24)));
  assert.equal(write.buffers().length, 1);
});
