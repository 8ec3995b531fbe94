import assert from 'node:assert/strict';
import { test } from 'node:test';
import { defineConfig, loadConfig } from '@ron/kernel';
import { checkIngressKeys, INGRESS_KEYS, INGRESS_SEED_KEYS, ingressConfigOf } from './ingress-keys.ts';
import { INGRESS_DEFAULTS, ingressConfig, limitRows } from './limits.ts';
import type { IngressConfig } from './limits.ts';

const own = defineConfig({ ...INGRESS_KEYS }, checkIngressKeys);
const seed = defineConfig({ ...INGRESS_SEED_KEYS }, checkIngressKeys);
const given = (...flags: string[]): IngressConfig => ingressConfig(ingressConfigOf(loadConfig({ schema: own, flags })));
const givenBySeed = (...flags: string[]): IngressConfig =>
  ingressConfig(ingressConfigOf(loadConfig({ schema: seed, flags })));

test('a default lies within the bounds of its row, and each key belongs to one limit', () => {
  const keys = limitRows().flatMap(([, { key }]) => key ?? []);
  assert.equal(new Set(keys).size, keys.length);
  for (const [name, row] of limitRows()) {
    assert.ok(row.min < row.max, name);
    if (row.default !== undefined) assert.ok(row.default >= row.min && row.default <= row.max, name);
    assert.match(row.doc, /^[A-Z].*\.$/, name);
  }
});

test('an empty configuration gives the defaults', () => {
  assert.deepEqual(given(), INGRESS_DEFAULTS);
  assert.deepEqual(givenBySeed(), { ...INGRESS_DEFAULTS, rps_limit: 500 });
});

test('every limit with a key can be moved to both of its bounds, and not beyond', () => {
  const unit = { count: '', ms: 'ms', bytes: 'B', bytes_per_s: 'B/s' } as const;
  for (const [name, row] of limitRows()) {
    if (row.key === undefined) continue;
    for (const value of [row.min, row.max])
      assert.equal(given(`--${row.key}=${value}${unit[row.unit]}`)[name], value, `${name} = ${value}`);
    assert.throws(() => given(`--${row.key}=${row.max + 1}${unit[row.unit]}`), /expected/, name);
  }
});

test('the names of the seed of edge work', () => {
  const config = givenBySeed(
    '--ingress.timeout_secs=7',
    '--ingress.max_inflight=3',
    '--ingress.rps_limit=4',
    '--ingress.body_bytes=2KiB',
    '--ingress.decompress_max_ratio=6',
    '--ingress.decompress_abs_bytes=8KiB',
    '--idle_timeout=9s',
  );
  assert.deepEqual(config, {
    ...INGRESS_DEFAULTS,
    header_timeout_ms: 7000,
    read_timeout_ms: 7000,
    write_timeout_ms: 7000,
    request_deadline_ms: 7000,
    max_inflight: 3,
    rps_limit: 4,
    body_bytes_max: 2048,
    decompress_max_ratio: 6,
    decompress_abs_bytes: 8192,
    idle_timeout_ms: 9000,
  });
  assert.throws(() => givenBySeed('--server.max_inflight=3'), /max_inflight/, 'one limit has one name in a service');
});

test('a limit that is no usable number is a defect of the caller', () => {
  for (const [name, row] of limitRows()) {
    for (const value of [-1, Number.NaN, Infinity, ...(row.min === 0 ? [] : [0])])
      assert.throws(() => ingressConfig({ [name]: value }), new RegExp(`ingress ${name} must be`), `${name} ${value}`);
    if (row.default !== undefined)
      assert.throws(() => ingressConfig({ [name]: undefined }), new RegExp(`ingress ${name} must be`), name);
  }
  assert.equal(ingressConfig({ rate_bytes_per_s_min: 0 }).rate_bytes_per_s_min, 0);
});
