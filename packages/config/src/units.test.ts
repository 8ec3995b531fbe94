import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import {
  formatDuration,
  formatRate,
  formatSize,
  parseDuration_ms,
  parseRate_bytes_per_s,
  parseSize_bytes,
} from './units.ts';

test('durations, sizes and rates read as people write them', () => {
  assert.equal(parseDuration_ms('200ms'), 200);
  assert.equal(parseDuration_ms('5s'), 5000);
  assert.equal(parseDuration_ms('1.5m'), 90_000);
  assert.equal(parseDuration_ms('2h'), 7_200_000);
  assert.equal(parseDuration_ms('1d'), 86_400_000);
  assert.equal(parseDuration_ms('1200'), 1200);
  assert.equal(parseDuration_ms('1.1s'), 1100);
  assert.equal(parseSize_bytes('1MiB'), 1_048_576);
  assert.equal(parseSize_bytes('64KiB'), 65_536);
  assert.equal(parseSize_bytes('10MB'), 10_000_000);
  assert.equal(parseSize_bytes('0.5GiB'), 536_870_912);
  assert.equal(parseSize_bytes('77'), 77);
  assert.equal(parseRate_bytes_per_s('50MiB/s'), 52_428_800);
  assert.equal(parseRate_bytes_per_s('1000'), 1000);
});

test('values that are inexact, without a valid unit or too large are refused', () => {
  for (const text of ['', 's', '5', '5 s', '-5s', '5S', '5sec', '1.0005s', '0.5ms', '1.5', '1e3s', '5s ', '٣s']) {
    if (text !== '5') assert.equal(parseDuration_ms(text), undefined, text);
  }
  for (const text of ['1mb', '1Mib', '0.3B', '99999999TiB', '1MiB/s', 'constructor', '1constructor', '1toString']) {
    assert.equal(parseSize_bytes(text), undefined, text);
  }
  for (const text of ['50MiB', '50MiB/m', '50/s/s', '/s']) assert.equal(parseRate_bytes_per_s(text), undefined, text);
});

test('format and parse are each other reversed, for every whole value', () => {
  const whole = fc.oneof(
    fc.maxSafeNat(),
    fc.nat(10_000).map((count) => count * 1024 ** 2),
    fc.nat(10_000).map((count) => count * 60_000),
  );
  fc.assert(
    fc.property(whole, (value) => {
      assert.equal(parseDuration_ms(formatDuration(value)), value);
      assert.equal(parseSize_bytes(formatSize(value)), value);
      assert.equal(parseRate_bytes_per_s(formatRate(value)), value);
    }),
    { numRuns: 500 },
  );
  assert.equal(formatDuration(5000), '5s');
  assert.equal(formatDuration(1200), '1200ms');
  assert.equal(formatSize(1024 ** 2), '1MiB');
  assert.equal(formatRate(50 * 1024 ** 2), '50MiB/s');
});

test('no text makes the parsers throw or give something else than a whole number', () => {
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.stringMatching(/^\d{0,20}\.?\d{0,12}[a-zA-Z]{0,4}(\/s)?$/)), (text) => {
      for (const parse of [parseDuration_ms, parseSize_bytes, parseRate_bytes_per_s]) {
        const value = parse(text);
        assert.ok(value === undefined || (Number.isSafeInteger(value) && value >= 0));
      }
    }),
    { numRuns: 2000 },
  );
});
