import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { isRonError } from '@ron/kernel';
import { parseLive, parseOrigin } from './live-path.ts';

const QUERY = ['size', 'q', "o'clock"];

const KEYS: readonly (readonly [path: string, query: Record<string, string>, key: string])[] = [
  ['tiles.example.org/a.png', {}, 'live/tiles.example.org/a.png'],
  ['TILES.Example.org/A.png', {}, 'live/tiles.example.org/A.png'],
  ['tiles.example.org:443/a.png', {}, 'live/tiles.example.org/a.png'],
  ['tiles.example.org:8443/a.png', {}, 'live/tiles.example.org:8443/a.png'],
  ['tiles.example.org', {}, 'live/tiles.example.org/'],
  ['tiles.example.org/', {}, 'live/tiles.example.org/'],
  ['tiles.example.org/dir/', {}, 'live/tiles.example.org/dir/'],
  ['127.0.0.1:8443/a', {}, 'live/127.0.0.1:8443/a'],
  ['[::1]:8443/a', {}, 'live/[::1]:8443/a'],
  ['xn--nxasmq6b.example/a', {}, 'live/xn--nxasmq6b.example/a'],
  ['h/a b', {}, 'live/h/a%20b'],
  ['h/50%', {}, 'live/h/50%25'],
  ['h/%2e%2e/a', {}, 'live/h/%252e%252e/a'],
  ['h/a?b#c', {}, 'live/h/a%3Fb%23c'],
  ['h/ü', {}, 'live/h/%C3%BC'],
  ["h/$&+,;=:@-_.~!'()*", {}, 'live/h/$&+,;=:@-_.~%21%27%28%29%2A'],
  ['h/...', {}, 'live/h/...'],
  ['h/a', { size: '2', q: 'x' }, 'live/h/a?q=x&size=2'],
  ['h/a', { q: 'a&b=c d+e' }, 'live/h/a?q=a%26b%3Dc%20d%2Be'],
  ['h/a', { q: '' }, 'live/h/a?q='],
  ['h/a', { "o'clock": "'" }, 'live/h/a?o%27clock=%27'],
];

for (const [path, query, key] of KEYS)
  test(`${path} ${JSON.stringify(query)} has the key ${key}`, () => {
    const asset = parseLive(path, query, QUERY);
    assert.equal(asset.key, key);
    assert.equal(asset.url, `https://${key.slice('live/'.length)}`);
    assert.ok(asset.url.startsWith(`${asset.origin}/`));
  });

const REFUSED: readonly (readonly [why: string, path: string, query?: Record<string, string>])[] = [
  ['no host', '/a'],
  ['no host', ''],
  ['credentials', 'user@tiles.example.org/a'],
  ['credentials', 'user:pw@tiles.example.org/a'],
  ['a decimal address', '2130706433/a'],
  ['a hexadecimal address', '0x7f.0.0.1/a'],
  ['an octal address', '0177.0.0.1/a'],
  ['a short address', '127.1/a'],
  ['an address with a last dot', '127.0.0.1./a'],
  ['a name with a last dot', 'tiles.example.org./a'],
  ['two dots', 'tiles..example.org/a'],
  ['a name beyond ASCII', 'tïles.example.org/a'],
  ['a full-width name', 'ｔiles.example.org/a'],
  ['an ideographic dot', 'tiles。example/a'],
  ['an encoded dot', 'tiles%2eexample/a'],
  ['the Kelvin sign, whose lower case is k', '\u212Aelvin.example/a'],
  ['another form of an IPv6 address', '[0:0:0:0:0:0:0:1]/a'],
  ['an IPv6 address with a zone', '[fe80::1%25eth0]/a'],
  ['no port', 'h:/a'],
  ['a port with a zero', 'h:0443/a'],
  ['port 0', 'h:0/a'],
  ['a port that is too large', 'h:65536/a'],
  ['a port with a sign', 'h:+443/a'],
  ['two ports', 'h:1:2/a'],
  ['a blank', ' h/a'],
  ['a scheme', 'https://h/a'],
  ['an underscore first', '_h/a'],
  ['a hyphen last', 'h-/a'],
  ['a long name', `${'a'.repeat(60)}.${'b'.repeat(200)}/a`],
  ['a dot segment', 'h/./a'],
  ['a dot segment', 'h/../a'],
  ['a dot segment at the end', 'h/a/..'],
  ['a dot segment with a parameter', 'h/..;x=1/a'],
  ['an empty segment', 'h//a'],
  ['a backslash', 'h/a\\b'],
  ['a control character', 'h/a\u0000b'],
  ['a line feed', 'h/a\nb'],
  ['half a surrogate pair', 'h/\ud800'],
  ['half a surrogate pair in the query', 'h/a', { q: '\udc00' }],
  ['a parameter that is not allowed', 'h/a', { token: 'x' }],
  ['a parameter in another case', 'h/a', { Q: 'x' }],
  ['too long a path', `h/${'a'.repeat(5000)}`],
];

for (const [why, path, query = {}] of REFUSED)
  test(`refused: ${why} (${JSON.stringify(path.slice(0, 40))})`, () => {
    assert.throws(
      () => parseLive(path, query, QUERY),
      (error) => isRonError(error, path.length > 4096 ? 'uri_too_long' : 'bad_request'),
    );
  });

const segment = fc.string({ unit: 'binary', minLength: 1, maxLength: 8 }).filter((text) => !text.includes('/'));
const below = fc.array(segment, { maxLength: 4 }).map((segments) => `/${segments.join('/')}`);
const label = fc.stringMatching(/^[a-zA-Z0-9][a-zA-Z0-9-]{0,6}$/);
const host = fc
  .tuple(fc.array(label, { minLength: 1, maxLength: 3 }), fc.option(fc.nat(70_000)))
  .map(([labels, port]) => labels.join('.') + (port === null ? '' : `:${port}`));
const query = fc.dictionary(fc.constantFrom(...QUERY), fc.string({ unit: 'binary', maxLength: 6 }));

/** Undefined: refused. */
function keyOf(path: string, given: Readonly<Record<string, string>>) {
  try {
    return parseLive(path, given, QUERY);
  } catch (error) {
    assert.ok(isRonError(error, 'bad_request') || isRonError(error, 'uri_too_long'), String(error));
    return undefined;
  }
}

test('a key, decoded once and parsed again, is the same key, and no parser of URLs changes it', () => {
  let accepted = 0;
  fc.assert(
    fc.property(host, below, query, (name, path, given) => {
      const asset = keyOf(name + path, given);
      if (asset === undefined) return;
      accepted += 1;
      const [again, search = ''] = asset.key.slice('live/'.length).split('?');
      assert.deepEqual(keyOf(decodeURIComponent(again!), Object.fromEntries(new URLSearchParams(search))), asset);
      assert.equal(new URL(asset.url).href, asset.url);
      assert.equal(new URL(asset.url).origin, asset.origin);
      assert.match(asset.key, /^[!-~]+$/);
      assert.doesNotMatch(asset.key, /\/\.{1,2}(?:\/|$)|\/\/|\\/);
    }),
  );
  assert.ok(accepted > 5, 'most of the paths are valid');
});

test('two keys are equal exactly if origin, path and query are', () => {
  const spelled = fc.constantFrom('h', 'H', 'h:443', 'h:444', 'g', 'h.g');
  const some = fc.constantFrom('/a', '/A', '/a/', '/a?q=x', '/a#', '/%61', '/', '', '/a:443');
  const parameters = fc.constantFrom<Record<string, string>>({}, { q: 'x' }, { q: '' }, { size: 'x' });
  const request = fc.tuple(spelled, some, parameters);
  const partsOf = ([name, path, given]: [string, string, Record<string, string>]): string =>
    JSON.stringify([name.toLowerCase().replace(':443', ''), path === '' ? '/' : path, given]);
  fc.assert(
    fc.property(request, request, (one, other) => {
      const keys = [one, other].map(([name, path, given]) => parseLive(name + path, given, QUERY).key);
      assert.equal(keys[0] === keys[1], partsOf(one) === partsOf(other));
    }),
  );
});

test('an origin in the configuration has the spelling of the origins of paths', () => {
  assert.equal(parseOrigin('https://Tiles.example.org:443'), 'https://tiles.example.org');
  for (const text of [
    'http://h',
    'h',
    'https://h/',
    'https://h/a',
    'https://*.h',
    'https://',
    'https://h?',
    'https://0x7f.1',
  ])
    assert.equal(parseOrigin(text), undefined, text);
});
