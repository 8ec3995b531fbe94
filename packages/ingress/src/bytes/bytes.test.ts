/** Whole bodies, ranges and conditions are exact, from RAM and from a source. */
import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import fc from 'fast-check';
import { RonError } from '@ron/kernel';
import { byteBench, MIB, pattern, tape } from '../../test/bytes/byte-bench.ts';
import { fuzzRuns } from '@ron/testkit';
import type { ByteSource } from './bytes.ts';

test('whole bodies, from RAM and from a source, with their headers', async (t) => {
  const data = pattern(3 * MIB + 7);
  const sources: ByteSource[] = [
    tape(data),
    { ...tape(data), ram: [data] },
    { ...tape(data.subarray(0, 100)), ram: [data.subarray(0, 40), data.subarray(40, 100)] },
  ];
  let next = 0;
  const http = await byteBench(t, () => sources[next++]!, { headers: { 'X-Extra': 'yes' } });
  for (const source of sources) {
    const reply = await http.get();
    assert.equal(reply.status, 200);
    assert.ok(reply.body.equals(data.subarray(0, source.size)));
    assert.equal(reply.headers['content-length'], String(source.size));
    assert.equal(reply.headers['etag'], '"tape"');
    assert.equal(reply.headers['accept-ranges'], 'bytes');
    assert.equal(reply.headers['x-corr-id'], 'corr');
    assert.equal(reply.headers['x-extra'], 'yes');
    assert.deepEqual(await http.outcome(), { status: 200, body_bytes: source.size, result: 'complete' });
  }
});

test('HEAD, 304 and an empty object read nothing', async (t) => {
  const source = tape(pattern(100));
  const empty = tape(Buffer.alloc(0));
  let current: ByteSource = source;
  const http = await byteBench(t, () => current);
  const head = await http.get({ range: 'bytes=0-1' }, 'HEAD');
  assert.equal(head.status, 200);
  assert.equal(head.headers['content-length'], '100');
  assert.equal(head.body.length, 0);
  const same = await http.get({ 'if-none-match': '"tape"' });
  assert.equal(same.status, 304);
  assert.equal(same.headers['content-length'], undefined);
  assert.equal(source.closed + source.pulled, 0);
  current = empty;
  const none = await http.get();
  assert.equal(none.status, 200);
  assert.equal(none.headers['content-length'], '0');
  assert.equal((await http.get({ range: 'bytes=0-' })).status, 416);
});

test('412 and 416 are problems; 416 states the size', async (t) => {
  const http = await byteBench(t, () => tape(pattern(100)));
  const range = await http.get({ range: 'bytes=100-' });
  assert.equal(range.status, 416);
  assert.equal(range.headers['content-range'], 'bytes */100');
  assert.equal(range.headers['content-type'], 'application/problem+json');
  assert.equal(JSON.parse(String(range.body)).code, 'range_not_satisfiable');
  const failed = await http.get({ 'if-match': '"other"' });
  assert.equal(failed.status, 412);
  assert.equal(JSON.parse(String(failed.body)).code, 'precondition_failed');
  assert.equal((await http.outcome()).result, 'refused');
});

test('a refusal can be answered by the caller', async (t) => {
  const refused: unknown[] = [];
  let answer: ServerResponse | undefined;
  const source = tape(pattern(100), 10, () => {
    throw new RonError('integrity', 'bad');
  });
  const http = await byteBench(t, (_req, res) => ((answer = res), source), {
    refuse: (error) => {
      refused.push(error);
      answer!.writeHead(418).end();
    },
  });
  assert.equal((await http.get()).status, 418);
  assert.equal((await http.get({ range: 'bytes=100-' })).status, 418);
  assert.deepEqual(
    refused.map((error) => (error as RonError).code),
    ['integrity', 'range_not_satisfiable'],
  );
});

test('any range of any object, in any chunks, from RAM or not, is exact', async (t) => {
  const data = pattern(5000);
  let source: ByteSource = tape(data);
  const http = await byteBench(t, () => source);
  await fc.assert(
    fc.asyncProperty(
      fc.nat(5000),
      fc.nat(5100),
      fc.nat(5100),
      fc.integer({ min: 1, max: 2000 }),
      fc.boolean(),
      async (size, first, last, chunk, ram) => {
        const whole = data.subarray(0, size);
        source = ram ? { ...tape(whole, chunk), ram: [whole.subarray(0, 7), whole.subarray(7)] } : tape(whole, chunk);
        const reply = await http.get({ range: `bytes=${first}-${last}` });
        assert.equal(reply.whole, true);
        if (last < first) {
          assert.equal(reply.status, 200);
          assert.ok(reply.body.equals(whole));
        } else if (first >= size) assert.equal(reply.status, 416);
        else {
          assert.equal(reply.status, 206);
          assert.ok(reply.body.equals(whole.subarray(first, last + 1)));
          assert.equal(reply.headers['content-range'], `bytes ${first}-${Math.min(last, size - 1)}/${size}`);
        }
      },
    ),
    fuzzRuns(150),
  );
});
