import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Blake3Hasher } from '@napi-rs/blake-hash';
import { idempotencyKey } from './idempotency-key.ts';

const DELIVERY = { provider: 'shop', incarnation: 7, scheme: 'stripe', dedup: 'id:a' } as const;

test('the key is the BLAKE3 of provider, incarnation, scheme and dedup value', () => {
  const expected = new Blake3Hasher().update(Buffer.from('shop\n7\nstripe\nid:a')).digest('hex');
  assert.equal(idempotencyKey(DELIVERY), expected);
});

test('another provider, incarnation, scheme or dedup value gives another key', () => {
  const keys = [
    idempotencyKey(DELIVERY),
    idempotencyKey({ ...DELIVERY, dedup: 'id:b' }),
    idempotencyKey({ ...DELIVERY, scheme: 'standard' }),
    idempotencyKey({ ...DELIVERY, provider: 'shop2' }),
    idempotencyKey({ ...DELIVERY, incarnation: 8 }),
  ];
  assert.equal(new Set(keys).size, keys.length);
});
