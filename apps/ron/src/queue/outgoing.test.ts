/** The messages that `ron queue send` reads. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { MAILBOX_LIMITS } from '@ron/proto';
import { tempDirFor } from '@ron/testkit';
import { headersArg } from './headers.ts';
import { FLUSH, linesOf, payloads } from './outgoing.ts';

async function* chunked(bytes: Uint8Array, sizes: readonly number[]): AsyncGenerator<Uint8Array> {
  let at = 0;
  for (const size of sizes) {
    if (at >= bytes.length) return;
    yield bytes.subarray(at, at + size);
    at += size;
  }
  if (at < bytes.length) yield bytes.subarray(at);
}

test('lines are the same wherever the input is cut; the last one may lack its line break', async () => {
  const text = fc.array(fc.string({ unit: fc.constantFrom('a', 'b', '\n', '\r', '\u00e9'), maxLength: 40 }));
  await fc.assert(
    fc.asyncProperty(text, fc.array(fc.integer({ min: 1, max: 9 }), { maxLength: 60 }), async (parts, sizes) => {
      const whole = parts.join('');
      const found: string[] = [];
      for await (const next of linesOf(chunked(Buffer.from(whole), sizes), 'input'))
        if (next !== FLUSH) found.push(Buffer.from(next.payload).toString());
      const expected = whole.split('\n');
      if (expected.at(-1) === '') expected.pop();
      assert.deepEqual(found, expected);
    }),
  );
});

test('each chunk of lines ends with a flush, so that a slow pipe is sent as it comes', async () => {
  const seen: (string | typeof FLUSH)[] = [];
  for await (const next of linesOf(chunked(Buffer.from('one\ntwo\nthree'), [4, 4, 5]), 'input'))
    seen.push(next === FLUSH ? FLUSH : next.source);
  assert.deepEqual(seen, ['input, line 1', FLUSH, 'input, line 2', FLUSH, FLUSH, 'input, line 3']);
});

test('a line, a file and a text above the limit are refused, and named', async (t) => {
  const dir = tempDirFor(t);
  const [exact, large] = [join(dir, 'exact'), join(dir, 'large')];
  await writeFile(exact, new Uint8Array(MAILBOX_LIMITS.message_bytes));
  await writeFile(large, new Uint8Array(MAILBOX_LIMITS.message_bytes + 1));
  const { signal } = new AbortController();
  const read = (init: { files?: string[]; text?: string; lines?: boolean }) =>
    Array.fromAsync(payloads({ files: [], text: undefined, lines: false, signal, ...init }));
  assert.equal((await read({ files: [exact] })).length, 1);
  assert.equal((await read({ files: [exact], lines: true })).filter((each) => each !== FLUSH).length, 1);
  await assert.rejects(read({ files: [large] }), {
    code: 'payload_too_large',
    message: /^.*large has more than 1\.0 MiB/,
  });
  await assert.rejects(read({ files: [large], lines: true }), { message: /large, line 1 has more than/ });
  await assert.rejects(read({ text: 'x'.repeat(MAILBOX_LIMITS.message_bytes + 1) }), { message: /^--text has more/ });
});

test('headers: names in lower case, values trimmed; doubles and other limits are refused', () => {
  assert.deepEqual(
    { ...headersArg(['Content-Type: text/plain', 'a:b:c', '__proto__:x']) },
    {
      'content-type': 'text/plain',
      a: 'b:c',
      ['__proto__']: 'x',
    },
  );
  assert.throws(() => headersArg(['a:1', 'A:2']), /duplicate header a/);
  assert.throws(() => headersArg(['no colon']), /--header must be NAME:VALUE/);
  assert.throws(() => headersArg(['a b:c']), /--header must be NAME:VALUE/);
  assert.throws(() => headersArg(Array.from({ length: 33 }, (_, at) => `h${at}:v`)), /at most 32 headers/);
  assert.throws(() => headersArg([`a:${'v'.repeat(8192)}`]), /at most 8192 bytes/);
});
