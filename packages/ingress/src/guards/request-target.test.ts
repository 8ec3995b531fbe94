import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { splitTarget } from './request-target.ts';

const split = (method: string, target: string): string | undefined => {
  const result = splitTarget(method, target, 'http');
  return result === undefined ? undefined : `${result.authority ?? '-'} ${result.target}`;
};

test('origin-form is returned unchanged', () => {
  for (const target of ['/', '/a?b', '//a', '/http://x/']) assert.equal(split('GET', target), `- ${target}`);
});

test('absolute-form is split into its authority and its origin-form target', () => {
  assert.equal(split('GET', 'http://localhost/a?b'), 'localhost /a?b');
  assert.equal(split('GET', 'HtTp://[::1]:80/'), '[::1]:80 /');
  assert.equal(split('GET', 'http://localhost'), 'localhost /');
  assert.equal(split('GET', 'http://localhost?a'), 'localhost /?a');
  assert.equal(split('GET', 'http://localhost//a'), 'localhost //a');
  assert.equal(split('GET', 'http://a@b/c'), 'a@b /c', 'the Host guard refuses the authority');
});

test('asterisk-form is for OPTIONS only', () => {
  assert.equal(split('OPTIONS', '*'), '- *');
  assert.equal(split('OPTIONS', 'http://localhost'), 'localhost *');
  assert.equal(split('OPTIONS', 'http://localhost/'), 'localhost /');
  assert.equal(split('GET', '*'), undefined);
});

test('other forms and schemes are not served', () => {
  for (const target of ['', 'a', 'localhost:80', 'https://localhost/', 'http:///a', 'http://', 'http:/a', '*a', '?a'])
    assert.equal(split('OPTIONS', target), undefined, target);
});

test('property: never throws, and the target begins with a slash or is the asterisk', () => {
  const target = fc.oneof(
    fc.string(),
    fc.string().map((text) => `http://${text}`),
  );
  fc.assert(
    fc.property(target, (text) => {
      const result = splitTarget('OPTIONS', text, 'http');
      assert.ok(result === undefined || result.target === '*' || result.target.startsWith('/'));
    }),
  );
});
