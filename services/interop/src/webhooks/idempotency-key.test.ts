import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Blake3Hasher } from '@napi-rs/blake-hash';
import { idempotencyKey } from './idempotency-key.ts';

test('the key is the BLAKE3 of provider, scheme and dedup value', () => {
  const expected = new Blake3Hasher().update(Buffer.from('shop\nstripe\nid:evt_1')).digest('hex');
  assert.equal(idempotencyKey('shop', 'stripe', 'id:evt_1'), expected);
});

test('another provider, scheme or dedup value gives another key', () => {
  const keys = [
    idempotencyKey('shop', 'stripe', 'id:a'),
    idempotencyKey('shop', 'stripe', 'id:b'),
    idempotencyKey('shop', 'standard', 'id:a'),
    idempotencyKey('shop2', 'stripe', 'id:a'),
  ];
  assert.equal(new Set(keys).size, keys.length);
});
