/** No read returns a damaged record: neither its payload nor its meta. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { tempDirFor } from '@ron/testkit';
import { HEADER_BYTES } from './record.ts';
import { SegmentLog } from './segment-log.ts';

const { signal } = new AbortController();
const PAYLOAD = Buffer.alloc(1000, 7);
const META = Buffer.from('text/plain');

for (const [part, at] of [
  ['payload', HEADER_BYTES + 500],
  ['meta', HEADER_BYTES + PAYLOAD.length + 3],
] as const) {
  test(`a flipped bit in the ${part} makes a record unreadable, unless the caller verifies it`, async (t) => {
    const dir = tempDirFor(t);
    const log = await SegmentLog.open({ dir, signal });
    const record = { type: 1, id: new Uint8Array(32).fill(1), payload: PAYLOAD, meta: META };
    const [place] = await log.append([record], signal);
    const sizes = [PAYLOAD.length, META.length] as const;
    assert.deepEqual(Buffer.from((await log.read(place!, ...sizes))!.payload), PAYLOAD);
    const path = join(dir, 'segments', readdirSync(join(dir, 'segments'))[0]!);
    const bytes = readFileSync(path);
    bytes[at]! ^= 1;
    writeFileSync(path, bytes);
    assert.equal(await log.read(place!, ...sizes), undefined);
    assert.equal(log.readNow(place!, ...sizes), undefined);
    assert.equal(log.peekNow(place!, ...sizes), undefined);
    const unverified = await log.read(place!, ...sizes, { verify: 'caller' });
    assert.deepEqual(Buffer.from(unverified!.head.id), Buffer.alloc(32, 1));
    await log.close();
  });
}
