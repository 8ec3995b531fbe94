import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { RonError } from '@ron/kernel';
import fc from 'fast-check';
import { BodyReader } from './body-reader.ts';

async function readAll(reader: BodyReader): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for (let chunk = await reader.next(); chunk !== undefined; chunk = await reader.next()) chunks.push(chunk);
  return Buffer.concat(chunks);
}

test('every byte is read once and in order, however it is split and whichever side is faster', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.uint8Array({ minLength: 1, maxLength: 50 }), fc.boolean()), { maxLength: 20 }),
      async (parts) => {
        const source = new PassThrough();
        const reading = readAll(new BodyReader(source));
        for (const [part, pause] of parts) {
          source.write(part);
          if (pause) await new Promise((resolve) => setImmediate(resolve));
        }
        source.end();
        // [storage I-10] [kms I-10] [index I-10] [edge I-10] [interop I-10]
        assert.deepEqual(await reading, Buffer.concat(parts.map(([part]) => part)));
      },
    ),
    { numRuns: 50 },
  );
});

test('a source that fails is never a clean end', async () => {
  const source = new PassThrough();
  const reader = new BodyReader(source);
  source.write('half');
  assert.equal(String(await reader.next()), 'half');
  const next = reader.next();
  source.destroy();
  await assert.rejects(next, /before the body was complete/);
  await assert.rejects(reader.next(), 'and so does every later read');
});

test('fail rejects the pending and every later read, and leaves the source alive', async () => {
  const source = new PassThrough();
  const reader = new BodyReader(source);
  const next = reader.next();
  assert.equal(reader.waiting, true);
  reader.fail(new RonError('request_timeout', 'too late'));
  await assert.rejects(next, /too late/);
  await assert.rejects(reader.next(), /too late/);
  assert.equal(reader.waiting, false);
  assert.equal(source.destroyed, false);
});

test('an error after the reader has detached does not end the process', async () => {
  const source = new PassThrough();
  const reader = new BodyReader(source);
  source.end();
  assert.equal(await reader.next(), undefined);
  reader.detach();
  source.destroy(new Error('late'));
  await new Promise((resolve) => setImmediate(resolve));
});
