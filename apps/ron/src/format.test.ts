/** Text of other programs in tables. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { columns } from './format.ts';

test('a value with line breaks and control characters cannot pretend to be another line', () => {
  const text = columns([
    ['size', '1 B, text/plain\nprovider  http://192.0.2.1  proven\r\t\u001b[2J\u2028'],
    ['provider', 'none is known'],
  ]);
  assert.deepEqual(text.split('\n'), [
    'size      1 B, text/plain\\u000aprovider  http://192.0.2.1  proven\\u000d\\u0009\\u001b[2J\\u2028',
    'provider  none is known',
  ]);
});
