/** Accepted generic templates give the bytes of two different (time, id, body) never the same value. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { GenericScheme } from '@ron/proto';
import { compileTemplate, fillTemplate, requireGeneric } from '../../src/signatures/generic-template.ts';
import { fuzzRuns } from '@ron/testkit';
import { GENERIC, hmac, SECRET, TIME_S, verify, type HeaderLines } from './requests.ts';

const genericOf = (template: string): GenericScheme => ({
  template,
  signature_header: 'X-Sign',
  encoding: 'hex',
  algorithm: 'sha256',
  ...(template.includes('{timestamp}') && { timestamp_header: 'X-Time' }),
  ...(template.includes('{id}') && { id_header: 'X-Id' }),
});

const isAccepted = (generic: GenericScheme): boolean => {
  try {
    requireGeneric(generic);
    return true;
  } catch (error) {
    assert.equal((error as { code?: string }).code, 'validation');
    return false;
  }
};

/** Few characters, so that fields and literals collide often. */
const SHORT = { unit: fc.constantFrom('1', 'a', '.', ':', '-', ' ', '{', '}'), maxLength: 3 } as const;
const piece = fc.oneof(
  { weight: 2, arbitrary: fc.constantFrom('{timestamp}', '{id}', '{body}') },
  { weight: 3, arbitrary: fc.string(SHORT) },
);
const templates = fc
  .array(piece, { maxLength: 6 })
  .map((pieces) => `${pieces.join('')}{body}`)
  .map(genericOf);
const triples = fc.record({
  time: fc.constantFrom('1', '11', '111'),
  id: fc.string({ unit: fc.constantFrom('1', 'a', '.', ':', '-'), minLength: 1, maxLength: 4 }),
  body: fc.string({ unit: fc.constantFrom('1', 'a', '.', ':', '-', ' '), maxLength: 6 }),
});
type Triple = typeof triples extends fc.Arbitrary<infer T> ? T : never;

/** The signed text if the scheme accepts the fields, as a string of bytes. */
async function signedText(generic: GenericScheme, { time, id, body }: Triple): Promise<string | undefined> {
  const filled = generic.template
    .replace('{timestamp}', () => time)
    .replace('{id}', () => id)
    .replace(/\{body\}$/, () => body);
  const headers: HeaderLines = [
    ['X-Time', time],
    ['X-Id', id],
    ['X-Sign', hmac(SECRET, filled, Buffer.alloc(0)).toString('hex')],
  ];
  const sent = { scheme: 'generic', generic, headers, body: Buffer.from(body), wall_ms: 1000 } as const;
  const verified = await verify({ ...sent, tolerance_ms: TIME_S * 1000 });
  return verified.ok ? filled : undefined;
}

/** The fields that the template signs. */
const signedFields = ({ template }: GenericScheme, { time, id, body }: Triple): string =>
  JSON.stringify([template.includes('{timestamp}') && time, template.includes('{id}') && id, body]);

test('two different requests never have the same signed bytes', async () => {
  let compared = 0;
  await fc.assert(
    fc.asyncProperty(templates, fc.array(triples, { minLength: 2, maxLength: 40 }), async (generic, all) => {
      if (!isAccepted(generic)) return;
      const byText = new Map<string, string>();
      for (const triple of all) {
        const text = await signedText(generic, triple);
        if (text === undefined) continue;
        const fields = signedFields(generic, triple);
        assert.equal(byText.get(text) ?? fields, fields, `${generic.template} gives ${text} twice`);
        byText.set(text, fields);
        compared += 1;
      }
    }),
    fuzzRuns(1500),
  );
  assert.ok(compared > 1000, `only ${compared} requests were compared`);
});

test('every request that fits an accepted template is accepted, except for delimiters in the id', async () => {
  const generic = genericOf('{id}:{timestamp}-x.{body}');
  assert.equal(await signedText(generic, { time: '1', id: 'a.-1', body: ':' }), 'a.-1:1-x.:');
  assert.equal(await signedText(generic, { time: '1', id: 'a:', body: '' }), undefined);
});

test('templates that allow two splits are refused', () => {
  const bad = [
    '',
    'body',
    '{body}x',
    '{timestamp}',
    '{body}{body}',
    '{body}.{body}',
    '{timestamp}{body}',
    '{id}{timestamp}.{body}',
    '{timestamp}0{body}',
    '{id}a.{body}',
    '{id}.{id}.{body}',
    '{timestamp}.{timestamp}.{body}',
    '{Body}',
    '{ body}',
    '{body',
    '{{body}',
    '{nonce}.{body}',
    '}.{body}',
    'é{body}',
    '\u0000{body}',
    `${'x'.repeat(251)}{body}`,
  ];
  for (const template of bad) assert.equal(isAccepted(genericOf(template)), false, template);
  for (const template of ['{body}', 'v0:{timestamp}:{body}', '{id}\n{timestamp}\n{body}', `${'x'.repeat(250)}{body}`])
    assert.equal(isAccepted(genericOf(template)), true, template);
});

test('headers that do not match the template are refused', () => {
  const { timestamp_header: _time, ...noTime } = GENERIC;
  const { id_header: _id, ...noId } = GENERIC;
  const bad: GenericScheme[] = [
    noTime,
    noId,
    { ...GENERIC, template: '{id}:{body}' },
    { ...GENERIC, signature_header: '' },
    { ...GENERIC, signature_header: 'x y' },
    { ...GENERIC, signature_header: 'x:' },
    { ...GENERIC, signature_header: 'x'.repeat(65) },
    { ...GENERIC, timestamp_header: 'x-SIGN' },
    { ...GENERIC, id_header: 'x-time' },
    { ...GENERIC, prefix: 'x'.repeat(65) },
    { ...GENERIC, prefix: 'é' },
    { ...GENERIC, prefix: 'a\n' },
    { ...GENERIC, encoding: 'base32' as 'hex' },
    { ...GENERIC, algorithm: 'md5' as 'sha256' },
  ];
  for (const generic of bad) assert.equal(isAccepted(generic), false, JSON.stringify(generic));
  assert.equal(isAccepted(GENERIC), true);
  assert.equal(isAccepted({ ...GENERIC, template: '{timestamp}.{body}' }), true, 'an unsigned id is allowed');
});

test('a template is compiled once, and filled in order', () => {
  const template = compileTemplate(GENERIC);
  assert.equal(compileTemplate(GENERIC), template);
  assert.equal(fillTemplate(template, { timestamp: '17', id: '$&{body}' }), 'v1:17:$&{body}:');
  assert.deepEqual([template.signature_header, template.id_end], ['x-sign', ':']);
});
