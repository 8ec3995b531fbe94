/** Arbitrary event streams: read as the standard demands, however they are cut into pieces. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { isRonError } from '@ron/kernel';
import { fuzzRuns } from '@ron/testkit';
import type { ByteStream } from './answer.ts';
import { readEvents, type StreamedEvent } from './event-reader.ts';

const EVENT_CHARS_MAX = 64 * 1024;

function streamOf(pieces: readonly Uint8Array[]): ByteStream {
  const rest = [...pieces];
  const read = (): ReturnType<ReturnType<ByteStream['getReader']>['read']> => {
    const value = rest.shift();
    return Promise.resolve(value === undefined ? { done: true } : { done: false, value });
  };
  const cancel = (): Promise<void> => Promise.resolve();
  return { getReader: () => ({ read, cancel }), cancel };
}

/** The pieces between the cuts. */
function cutAt(bytes: Uint8Array, cuts: readonly number[]): Uint8Array[] {
  const ends = [...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length].toSorted((one, other) => one - other);
  return ends.map((end, at) => bytes.subarray(ends[at - 1] ?? 0, end));
}

interface Read {
  readonly events: readonly StreamedEvent[];
  readonly isTooLong: boolean;
}

async function eventsOf(pieces: readonly Uint8Array[]): Promise<Read> {
  const events: StreamedEvent[] = [];
  try {
    for await (const event of readEvents(streamOf(pieces))) events.push(event);
    return { events, isTooLong: false };
  } catch (error) {
    assert.ok(isRonError(error, 'integrity'), String(error));
    return { events, isTooLong: true };
  }
}

/** Parses the whole text at once, line by line. */
function reference(bytes: Uint8Array): readonly StreamedEvent[] {
  const lines = new TextDecoder().decode(bytes, { stream: true }).split(/\r\n|\r|\n/);
  lines.pop();
  const events: StreamedEvent[] = [];
  let [data, event, id]: [string[], string | undefined, string | undefined] = [[], undefined, undefined];
  for (const line of lines) {
    if (line === '') {
      if (data.length > 0)
        events.push({ event: event ?? 'message', data: data.join('\n'), ...(id !== undefined && { id }) });
      [data, event, id] = [[], undefined, undefined];
      continue;
    }
    const colon = line.indexOf(':');
    const [name, text] = colon < 0 ? [line, ''] : [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, '')];
    if (name === 'data') data.push(text);
    if (name === 'event') event = text;
    if (name === 'id') id = text;
  }
  return events;
}

const cuts = fc.array(fc.nat(), { maxLength: 12 });
const line = fc.oneof(
  fc.constantFrom(
    '',
    'data: a',
    'data:b',
    'data',
    'event: delivery',
    'id: 7',
    ': comment',
    ':',
    'data: {"x":1}',
    'other: 1',
  ),
  fc.string({ unit: 'grapheme', maxLength: 12 }),
  fc.string({ unit: fc.constantFrom('d', 'a', 't', ':', ' ', '\r', '\n'), maxLength: 12 }),
);
const streams = fc.oneof(
  fc.uint8Array({ maxLength: 200 }),
  fc
    .array(fc.tuple(line, fc.constantFrom('\n', '\r', '\r\n', '\n\n', '\r\n\r\n')), { maxLength: 30 })
    .map((lines) => new Uint8Array(Buffer.from(lines.flat().join('')))),
);

test('any bytes, cut anywhere, give the events of a parser that has all of them at once', async () => {
  let count = 0;
  await fc.assert(
    fc.asyncProperty(streams, cuts, async (bytes, at) => {
      const { events, isTooLong } = await eventsOf(cutAt(bytes, at));
      assert.equal(isTooLong, false);
      assert.deepEqual(events, reference(bytes));
      count += events.length;
    }),
    fuzzRuns(2000),
  );
  assert.ok(count > 0, 'there were events');
});

test('written events are read as they were, and the last one without its empty line is dropped', async () => {
  const field = fc.string({ unit: 'grapheme', maxLength: 20 }).filter((text) => !/[\r\n]/.test(text));
  const event = fc.record(
    { event: field, data: fc.array(field, { minLength: 1, maxLength: 3 }).map((all) => all.join('\n')), id: field },
    { requiredKeys: ['event', 'data'], noNullPrototype: true },
  );
  const end = fc.constantFrom('\n', '\r', '\r\n');
  await fc.assert(
    fc.asyncProperty(fc.array(event, { maxLength: 5 }), end, cuts, async (events, eol, at) => {
      const text = events.map(({ event: name, data, id }) =>
        [
          `event: ${name}`,
          ...(id === undefined ? [] : [`id: ${id}`]),
          ...data.split('\n').map((each) => `data: ${each}`),
        ]
          .map((each) => each + eol)
          .join(''),
      );
      const bytes = Buffer.from(`${text.map((each) => each + eol).join('')}data: cut${eol}`);
      assert.deepEqual(await eventsOf(cutAt(bytes, at)), { events, isTooLong: false });
    }),
    fuzzRuns(500),
  );
});

test('an event above the limit ends the stream, and the events before it are yielded, however it is cut', async () => {
  const filler = fc.integer({ min: EVENT_CHARS_MAX - 20, max: EVENT_CHARS_MAX + 20 });
  await fc.assert(
    fc.asyncProperty(filler, fc.boolean(), cuts, async (chars, isOneLine, at) => {
      const text = isOneLine
        ? 'x'.repeat(chars)
        : `${'x'.repeat(chars / 2)}\n${'x'.repeat(chars - Math.floor(chars / 2))}`;
      const bytes = Buffer.from(`data: first\n\n${text}\ndata: y\n\ndata: last\n\n`);
      const first = { event: 'message', data: 'first' };
      const others = [
        { event: 'message', data: 'y' },
        { event: 'message', data: 'last' },
      ];
      const isTooLong = chars + 'data: y'.length > EVENT_CHARS_MAX;
      assert.deepEqual(await eventsOf(cutAt(bytes, at)), {
        events: isTooLong ? [first] : [first, ...others],
        isTooLong,
      });
    }),
    fuzzRuns(100),
  );
});
