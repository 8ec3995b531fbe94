import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodeEvent, encodeGap, ENTRY_BYTES_MAX, inputOf, mergeGaps, type AuditEvent } from './event.ts';

const EVENT: AuditEvent = {
  op: 'sign',
  tenant: 'acme',
  kid: 'acme/docs/ed25519/0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10#v1',
  alg: 'ed25519',
  purpose: 'docs',
  input_hash: `b3:${'0'.repeat(64)}`,
  op_id: 'op-1',
  time_ms: 1_700_000_000_000,
  result: 'ok',
  actor: 'c4p4b1l1ty',
  subject: 'alice',
  chain: ['r00t', '1ssu3r'],
};

/** The canonical form: sorted keys, no spaces. */
const canonical = (bytes: Buffer): string => {
  const value = JSON.parse(bytes.toString()) as Record<string, unknown>;
  return JSON.stringify(Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1))));
};

test('entries are canonical JSON', () => {
  for (const event of [
    EVENT,
    { ...EVENT, op_id: undefined, input_hash: undefined },
    { ...EVENT, input_bytes: 65_536 },
  ]) {
    const bytes = encodeEvent(event);
    assert.equal(bytes.toString(), canonical(bytes));
    const recorded = JSON.parse(bytes.toString()) as AuditEvent;
    assert.deepEqual(recorded, JSON.parse(JSON.stringify(event)));
  }
  assert.equal(encodeGap({ count: 3, from: 1, to: 2 }).toString(), '{"count":3,"from":1,"op":"gap","to":2}');
});

test('the longest entry fits into the log format', () => {
  const kid = `${'t'.repeat(64)}/${'p'.repeat(64)}/aes-256-gcm/0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10#v999999`;
  const long = { ...EVENT, kid, op_id: 'o'.repeat(128), actor: 'a'.repeat(128), result: 'verify_cache_expired' };
  assert.ok(encodeEvent(long).length < ENTRY_BYTES_MAX);
});

test('merged gaps cover the times of both', () => {
  const first = mergeGaps(undefined, { count: 1, from: 20, to: 20 });
  assert.deepEqual(mergeGaps(mergeGaps(first, { count: 1, from: 10, to: 10 }), { count: 2, from: 25, to: 30 }), {
    count: 4,
    from: 10,
    to: 30,
  });
});

test('an input is recorded by its hash, and bytes also by their length', () => {
  assert.deepEqual(inputOf({ payload_b3: 'ab' }), { input_hash: 'b3:ab' });
  const { input_hash, input_bytes } = inputOf({ message: Buffer.from('abc') });
  assert.equal(input_bytes, 3);
  assert.equal(input_hash, 'sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
});
