import assert from 'node:assert/strict';
import { test } from 'node:test';
import { headerText } from './header-text.ts';

const rawHeaders = ['Host', 'a', 'CONTENT-encoding', 'gzip', 'X', '', 'content-Encoding', 'br'];

test('a header is found in any case, repeated lines are joined, and an empty value is not undefined', () => {
  assert.equal(headerText({ rawHeaders }, 'host'), 'a');
  assert.equal(headerText({ rawHeaders }, 'content-encoding'), 'gzip, br');
  assert.equal(headerText({ rawHeaders }, 'x'), '');
  assert.equal(headerText({ rawHeaders }, 'content-length'), undefined);
  assert.equal(headerText({ rawHeaders }, 'gzip'), undefined, 'a value is not a name');
});
