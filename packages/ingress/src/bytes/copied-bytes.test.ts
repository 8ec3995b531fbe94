import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CopiedBytes, TEXT_BYTES_MAX } from './copied-bytes.ts';

const ABOUT = { etag: '"a"', media_type: 'text/plain', headers: {} };

for (const size of [0, 1, TEXT_BYTES_MAX, TEXT_BYTES_MAX + 1]) {
  test(`${size} bytes do not change when their memory is reused`, async () => {
    const memory = Buffer.from(Array.from({ length: size + 20 }, (_, index) => (index * 7) % 256));
    const given = memory.subarray(10, 10 + size);
    const expected = Buffer.from(given);
    const copied = new CopiedBytes(given, ABOUT);
    memory.fill(0xee);
    assert.equal(copied.size, size);
    assert.equal(copied.text, size <= TEXT_BYTES_MAX ? expected.toString('latin1') : undefined);
    assert.deepEqual(Buffer.concat(copied.ram), expected);
    const part: Uint8Array[] = [];
    for await (const batch of copied.read(1, size)) part.push(...batch);
    assert.deepEqual(Buffer.concat(part), expected.subarray(1));
  });
}
