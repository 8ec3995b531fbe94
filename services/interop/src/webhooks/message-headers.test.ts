import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { messageHeaders } from './message-headers.ts';

const verified = { ok: true, secret_version: 1, dedup: 'b3:00', answers_empty: false } as const;
const base = { provider: 'shop', receipt: '01J', content_type: 'application/json', verified, isTest: false } as const;

test('a message names content type, provider and receipt, and event and delivery id if there are any', () => {
  const always = { 'content-type': 'application/json', 'ron-provider': 'shop', 'ron-receipt': '01J' };
  assert.deepEqual(messageHeaders(base), always);
  const named = { ...verified, event: 'unsigned-push', delivery_id: 'd-1' };
  assert.deepEqual(messageHeaders({ ...base, verified: named }), {
    ...always,
    'ron-event': 'unsigned-push',
    'ron-delivery-id': 'd-1',
  });
});

test('only a sample of the operator has the header ron-test', () => {
  assert.equal(messageHeaders({ ...base, isTest: true })['ron-test'], '1');
  assert.ok(!('ron-test' in messageHeaders(base)));
});

test('a content type that is missing, too long or not printable becomes application/octet-stream', () => {
  for (const content_type of [undefined, '', 'x'.repeat(257), 'text/plain\n', 'text/é'])
    assert.equal(messageHeaders({ ...base, content_type })['content-type'], 'application/octet-stream');
  const longest = 'x'.repeat(256);
  assert.equal(messageHeaders({ ...base, content_type: longest })['content-type'], longest);
});

test('every value is printable ASCII of at most 256 characters', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 300 }), (text) => {
      const headers = messageHeaders({
        ...base,
        content_type: text,
        verified: { ...verified, event: text, delivery_id: text },
      });
      for (const value of Object.values(headers)) assert.match(value, /^[\x20-\x7e]{1,256}$/);
    }),
  );
});
