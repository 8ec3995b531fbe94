import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { isTlsOrLoopback, rulesFor, TargetRules } from './target.ts';

const numRuns = Number(process.env['RON_FUZZ_RUNS'] ?? 1000);
const rules = new TargetRules({ schemes: ['https', 'http'], ports: [443, 80, 8443] });

test('a URL becomes one canonical target', () => {
  assert.deepEqual(rules.parse('HTTPS://Tiles.Example:443/a/../b%20c?x=1#part'), {
    origin: 'https://tiles.example',
    scheme: 'https',
    hostname: 'tiles.example',
    isLiteral: false,
    port: 443,
    host: 'tiles.example',
    path: '/b%20c?x=1',
  });
  const { host, hostname, isLiteral, origin } = rules.parse('https://[2606:4700::1]:8443/');
  assert.deepEqual([host, hostname, isLiteral], ['[2606:4700::1]:8443', '2606:4700::1', true]);
  assert.equal(origin, 'https://[2606:4700::1]:8443');
  assert.equal(rules.parse('https://bücher.example/').hostname, 'xn--bcher-kva.example');
});

/** One of the spellings of an IPv4 number: 1 to 4 parts, each in any base, with case and a trailing dot. */
const spelling = fc
  .record({
    bytes: fc.uint8Array({ minLength: 4, maxLength: 4 }),
    parts: fc.integer({ min: 1, max: 4 }),
    bases: fc.array(fc.constantFrom(8, 10, 16), { minLength: 4, maxLength: 4 }),
    dot: fc.boolean(),
    wide: fc.boolean(),
    percent: fc.boolean(),
  })
  .map(({ bytes, parts, bases, dot, wide, percent }) => {
    const head = [...bytes.subarray(0, parts - 1)];
    const tail = bytes.subarray(parts - 1).reduce((value, byte) => value * 256 + byte, 0);
    const digits = [...head, tail].map((value, index) => {
      const base = bases[index]!;
      return base === 8 ? `0${value.toString(8)}` : base === 16 ? `0X${value.toString(16)}` : String(value);
    });
    let text = digits.join('.') + (dot ? '.' : '');
    if (wide) text = text.replace(/\d/g, (digit) => String.fromCodePoint(0xff10 + Number(digit))).replaceAll('.', '。');
    else if (percent) text = text.replace(/\d/g, (digit) => `%3${digit}`);
    return { text, expected: bytes.join('.') };
  });

test('every spelling of an IPv4 literal is that address', () => {
  fc.assert(
    fc.property(spelling, ({ text, expected }) => {
      const { hostname, isLiteral } = rules.parse(`https://${text}/`);
      assert.deepEqual([hostname, isLiteral], [expected, true], text);
    }),
    { numRuns },
  );
});

test('a name is never something that a resolver or a socket reads as an address', () => {
  const host = fc.string({ unit: fc.constantFrom(...Array.from('0123456789abcdefxX.:%[]-_。１①@/\\#? \t')) });
  fc.assert(
    fc.property(host, (text) => {
      let target;
      try {
        target = rules.parse(`https://${text}/`);
      } catch (error) {
        assert.ok(['validation', 'reject_policy'].includes((error as { code: string }).code));
        return;
      }
      if (target.isLiteral) return;
      assert.match(target.hostname, /^[a-z0-9_-]+(\.[a-z0-9_-]+)*$/);
      const last = target.hostname.split('.').at(-1)!;
      assert.doesNotMatch(last, /^(\d+|0x[0-9a-f]*)$/, 'a last label that is a number makes it an address');
    }),
    { numRuns: numRuns * 5 },
  );
});

test('the rules for a configured URL allow its scheme and port only', () => {
  assert.deepEqual(rulesFor('https://w.example/log'), { schemes: ['https'], ports: [443] });
  assert.deepEqual(rulesFor('http://127.0.0.1:8080'), { schemes: ['http'], ports: [8080] });
  for (const url of ['', 'w.example', 'ftp://w.example/', 'https://a b/', 'https://w.example./'])
    assert.throws(() => rulesFor(url), { code: 'validation' }, url);
  assert.throws(() => rulesFor('https://user@w.example/'), { code: 'reject_policy' });
});

test('a URL is private if it is encrypted or on loopback', () => {
  for (const url of ['https://w.example', 'http://127.9.9.9:80', 'http://[::1]/', 'http://localhost:4566'])
    assert.equal(isTlsOrLoopback(url), true, url);
  const open = [
    'http://w.example',
    'http://10.0.0.1',
    'http://127.0.0.1.w.example',
    'ftp://127.0.0.1',
    '',
    'http://0.0.0.0',
  ];
  for (const url of open) assert.equal(isTlsOrLoopback(url), false, url);
});

test('anything else is refused', () => {
  const bad = [
    '',
    'x',
    'https://',
    'https:///',
    'https://a b/',
    'https://a\n/',
    'https:\\\\a\\',
    'https://a./',
    'https://-a/',
    'https://[::1',
    'https://[fe80::1%25lo]/',
    'https://256.1.1.1/',
    'https://1.2.3.4.5/',
    'https://0x100000000/',
    `https://${'a'.repeat(64)}.b/`,
    `https://${'a.'.repeat(130)}b/`,
    `https://a/${'x'.repeat(9000)}`,
  ];
  for (const url of bad) assert.throws(() => rules.parse(url), { code: 'validation' }, url);
  const refused = ['ftp://a/', 'https://a:22/', 'https://u@a/', 'https://:p@a/', 'wss://a/', 'file:///a'];
  for (const url of refused) assert.throws(() => rules.parse(url), { code: 'reject_policy' }, url);
});
