/** The scanner of a verified body agrees with `JSON.parse`, and leaves the event loop free. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { jsonMembers, type Members, type Wanted } from './json-members.ts';

const WANTED: Wanted = { id: 'text', type: 'text', event: { type: 'text', in: { id: 'text' } }, '': 'text', é: 'text' };
const noTurn = (): Promise<void> => Promise.resolve();
const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const RUNS = Number(process.env['RON_FUZZ_RUNS'] ?? 1000);

/** The wanted members of a parsed object. */
function projected(value: unknown, wanted: Wanted): Members {
  const members: Members = {};
  for (const [name, kind] of Object.entries(wanted)) {
    if (!Object.hasOwn(value as object, name)) continue;
    const found = (value as Record<string, unknown>)[name];
    if (kind === 'text') members[name] = typeof found === 'string' && found.length <= 256 ? found : null;
    else members[name] = isObject(found) ? projected(found, kind) : null;
  }
  return members;
}

const isObject = (value: unknown): boolean => typeof value === 'object' && value !== null && !Array.isArray(value);

function expected(body: Uint8Array): Members {
  try {
    const value = JSON.parse(UTF8.decode(body)) as unknown;
    return isObject(value) ? projected(value, WANTED) : {};
  } catch {
    return {};
  }
}

async function requireAgreement(body: Uint8Array): Promise<void> {
  assert.deepEqual(await jsonMembers(body, WANTED, noTurn), expected(body), Buffer.from(body).toString());
}

test('objects, repeated members, escapes, and texts that are not JSON', async () => {
  const long = 'x'.repeat(256);
  for (const text of [
    '',
    ' ',
    '{}',
    ' \t\r\n{ } \n',
    '{"id":"a","type":"b","event":{"type":"c","in":{"id":"d"}}}',
    '{"id":"a","id":"b"}',
    '{"id":"a","id":7}',
    '{"id":"a","id":{"id":"c"}}',
    '{"event":{"type":"a"},"event":{}}',
    '{"event":{"type":"a"},"event":"x"}',
    '{"event":[{"type":"a"}]}',
    '{"other":{"id":"a","event":{"type":"b"}},"x":[{"id":"c"}]}',
    '{"event":{"in":[{"id":"d"}],"x":{"id":"e"},"type":"f"},"id":"g"}',
    String.raw`{"\u0069\u0064":"\ud83d\ude00\n\"\\\/"}`,
    String.raw`{"\u0069\u0064":"\ud83d"}`,
    '{"é":"€"}',
    String.raw`{"\u00E9":"","":"empty"}`,
    `{"id":"${long}"}`,
    `{"id":"${long}x"}`,
    `{"id":"${String.raw`\u0061`.repeat(256)}"}`,
    `{"id":"${String.raw`\u0061`.repeat(257)}"}`,
    '{"__proto__":{"id":"a"},"constructor":1,"hasOwnProperty":2}',
    '{"id":-0,"type":1e5,"x":[0,-1,0.5,1E+2,1e-7,true,false,null]}',
    '{"id":"a",}',
    '{"id":"a" "b":1}',
    '{"id"}',
    '{"id":}',
    '{id:"a"}',
    "{'id':'a'}",
    '{"id":"a"',
    '{"id":"a"}}',
    '{"id":"a"]',
    '{"id":"a"}x',
    '[{"id":"a"}]',
    '{"x":[1,]}',
    '{"x":[,1]}',
    '{"x":01}',
    '{"x":1.}',
    '{"x":.5}',
    '{"x":+1}',
    '{"x":1e}',
    '{"x":-}',
    '{"x":tru}',
    '{"x":nulll}',
    '{"x":NaN}',
    '{"x":"\u0001"}',
    '{"x":"\u007f"}',
    String.raw`{"x":"\x41"}`,
    String.raw`{"x":"\u00g0"}`,
    String.raw`{"x":"\u12`,
    '{"x":"\\',
    '\ufeff{"id":"a"}',
    '{"id":"a"}\u00a0',
    'null',
    '"id"',
    '7',
  ])
    await requireAgreement(Buffer.from(text));
  for (const bytes of [
    [...Buffer.from('{"id":"'), 0xff, ...Buffer.from('"}')],
    [...Buffer.from('{"id":"a"}'), 0x80],
    [...Buffer.from('{"x":"'), 0xed, 0xa0, 0x80, ...Buffer.from('"}')],
  ])
    await requireAgreement(Uint8Array.from(bytes));
});

test('it agrees with JSON.parse for valid JSON, for JSON with changed bytes, and for token soup', async () => {
  const name = fc.constantFrom('id', 'type', 'event', 'in', '', 'é', 'x', '__proto__');
  const json = fc.letrec<{ value: string; object: string }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 5, withCrossShrink: true },
      fc.oneof(fc.string({ unit: 'binary' }), name).map((text) => JSON.stringify(text)),
      fc.double({ noNaN: true, noDefaultInfinity: true }).map(String),
      fc.constantFrom('true', 'false', 'null', '0', '-0', '1e5', '1E-2'),
      tie('object'),
      fc.array(tie('value'), { maxLength: 3 }).map((items) => `[${items.join(', ')}]`),
    ),
    object: fc
      .array(fc.tuple(name, fc.boolean(), tie('value')), { maxLength: 5 })
      .map(
        (members) => `{${members.map(([key, isEscaped, value]) => `${quoted(key, isEscaped)} :${value}`).join(',')}}`,
      ),
  })).object;
  const tokens = fc
    .array(
      fc.constantFrom(
        ...'{ } [ ] : , "'.split(' '),
        '"id"',
        '"event"',
        '"type"',
        '"a"',
        '1',
        '-',
        'true',
        ' ',
        '\\',
        '\\u0069',
        '0',
        '.',
        'e',
      ),
      { maxLength: 14 },
    )
    .map((parts) => `{${parts.join('')}`);
  const changed = fc.tuple(json, fc.nat(), fc.nat(255), fc.boolean()).map(([text, place, byte, isCut]) => {
    const bytes = Buffer.from(text);
    const at = place % bytes.length;
    if (isCut) return bytes.subarray(0, at);
    bytes[at] = byte;
    return bytes;
  });
  const bodies = fc.oneof(
    fc.oneof(json, tokens).map((text) => Buffer.from(text)),
    changed,
  );
  await fc.assert(fc.asyncProperty(bodies, requireAgreement), { numRuns: RUNS });
});

/** In JSON, with each character escaped or none. */
function quoted(text: string, isEscaped: boolean): string {
  if (!isEscaped) return JSON.stringify(text);
  const escaped = text.replaceAll(/./g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`);
  return `"${escaped}"`;
}

test('each slice of a large body waits for its turn, and an abort ends the reading', async () => {
  const body = Buffer.from(`{"x":[${'{"id":1},'.repeat(110_000)}0],"id":"last"}`);
  const turns: number[] = [];
  const takeTurn = async (bytes: number): Promise<void> => void turns.push(bytes);
  assert.deepEqual(await jsonMembers(body, WANTED, takeTurn), { id: 'last' });
  assert.ok(turns.length > 20, `${turns.length} turns`);
  assert.ok(turns.reduce((sum, bytes) => sum + bytes, 0) >= body.length, 'all bytes are charged');
  let left = 3;
  const stop = new Error('the deadline has passed');
  const stopping = async (): Promise<void> => {
    if (left-- === 0) throw stop;
  };
  await assert.rejects(jsonMembers(body, WANTED, stopping), stop);
});

test('deep nesting needs no stack', async () => {
  const depth = 300_000;
  await requireAgreement(Buffer.from(`{"x":${'['.repeat(depth)}${']'.repeat(depth)},"id":"a"}`));
  await requireAgreement(Buffer.from(`${'{"event":'.repeat(1000)}{"type":"a"}${'}'.repeat(1000)}`));
});
