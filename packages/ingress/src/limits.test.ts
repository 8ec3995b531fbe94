import assert from 'node:assert/strict';
import { test } from 'node:test';
import { defineConfig, loadConfig } from '@ron/config';
import { createHttpServer } from './listen/http-server.ts';
import { checkIngressKeys, INGRESS_KEYS, INGRESS_SEED_KEYS, ingressConfigOf } from './ingress-keys.ts';
import { admissionOf } from './ingress-parts.ts';
import { INGRESS_DEFAULTS, ingressConfig, limitRows } from './limits.ts';
import type { IngressConfig } from './limits.ts';

const own = defineConfig({ ...INGRESS_KEYS }, checkIngressKeys);
const seed = defineConfig({ ...INGRESS_SEED_KEYS }, checkIngressKeys);
const given = (...flags: string[]): IngressConfig => ingressConfig(ingressConfigOf(loadConfig({ schema: own, flags })));
const givenBySeed = (...flags: string[]): IngressConfig =>
  ingressConfig(ingressConfigOf(loadConfig({ schema: seed, flags })));

test('a default is within the bounds of its row, and each key belongs to one limit', () => {
  const keys = limitRows().flatMap(([, { key }]) => key ?? []);
  assert.equal(new Set(keys).size, keys.length);
  for (const [name, row] of limitRows()) {
    assert.ok(row.min < row.max, name);
    if (row.default !== undefined) assert.ok(row.default >= row.min && row.default <= row.max, name);
    assert.match(row.doc, /^[A-Z].*\.$/, name);
  }
});

test('an empty configuration yields the defaults', () => {
  assert.deepEqual(given(), INGRESS_DEFAULTS);
  assert.deepEqual(givenBySeed(), { ...INGRESS_DEFAULTS, rps_limit: 500 });
});

test('every limit with a key can be set to both of its bounds, but not beyond', () => {
  const unit = { count: '', ms: 'ms', bytes: 'B', bytes_per_s: 'B/s' } as const;
  for (const [name, row] of limitRows()) {
    if (row.key === undefined) continue;
    // A reserve must be smaller than the limit of the listener.
    const others = name === 'inflight_reserve' ? ['--server.max_inflight=65536'] : [];
    for (const value of [row.min, row.max])
      assert.equal(given(`--${row.key}=${value}${unit[row.unit]}`, ...others)[name], value, `${name} = ${value}`);
    assert.throws(() => given(`--${row.key}=${row.max + 1}${unit[row.unit]}`), /expected/, name);
  }
});

test('contradictory limits are refused when they are read, in one sentence', () => {
  const refused = /server\.inflight_reserve: expected a number below max_inflight, which is \d+/;
  assert.throws(() => given('--server.inflight_reserve=600'), refused);
  assert.throws(() => given('--server.inflight_reserve=512'), refused);
  assert.throws(() => given('--server.max_inflight=4', '--server.inflight_reserve=4'), refused);
  assert.throws(() => givenBySeed('--ingress.max_inflight=4', '--server.inflight_reserve=4'), refused);
  assert.equal(given('--server.inflight_reserve=511').inflight_reserve, 511);
});

test('every accepted pair of bounds yields a listener', () => {
  const unit = { count: '', ms: 'ms', bytes: 'B', bytes_per_s: 'B/s' } as const;
  const flags = limitRows().flatMap(([, { key, min, max, unit: of }]) =>
    key === undefined ? [] : [min, max].map((value) => `--${key}=${value}${unit[of]}`),
  );
  let refused = 0;
  for (const one of flags) {
    for (const other of flags) {
      let config;
      try {
        config = given(one, other);
      } catch {
        refused++;
        continue;
      }
      assert.doesNotThrow(() => admissionOf(config), `${one} ${other}`);
      assert.doesNotThrow(() => createHttpServer(config, undefined).close(), `${one} ${other}`);
    }
  }
  assert.ok(refused < flags.length * 4, `${refused} pairs are refused`);
});

test('the key names of the edge specification work', () => {
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

test('an unusable number as a limit is a defect of the caller', () => {
  for (const [name, row] of limitRows()) {
    for (const value of [-1, Number.NaN, Infinity, ...(row.min === 0 ? [] : [0])])
      assert.throws(() => ingressConfig({ [name]: value }), new RegExp(`ingress ${name} must be`), `${name} ${value}`);
    if (row.default !== undefined)
      assert.throws(() => ingressConfig({ [name]: undefined }), new RegExp(`ingress ${name} must be`), name);
  }
  assert.equal(ingressConfig({ rate_bytes_per_s_min: 0 }).rate_bytes_per_s_min, 0);
  assert.throws(
    () => ingressConfig({ max_inflight: 4, inflight_reserve: 4 }),
    /inflight_reserve must be a number below/,
  );
});
