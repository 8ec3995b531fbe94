import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Bell } from './bell.ts';

const { signal } = new AbortController();

test('a ring ends the wait', async () => {
  const bell = new Bell();
  const waiting = bell.wait(Infinity, signal);
  bell.ring();
  await waiting;
});

test('a ring while nobody waits ends the next wait, and only that', async () => {
  const bell = new Bell();
  bell.ring();
  bell.ring();
  await bell.wait(Infinity, signal);
  const began_ms = performance.now();
  await bell.wait(30, signal);
  assert.ok(performance.now() - began_ms >= 25, 'many rings count as one');
});

test('the signal ends the wait', async () => {
  const bell = new Bell();
  const stop = new AbortController();
  const waiting = bell.wait(Infinity, stop.signal);
  stop.abort();
  await waiting;
  await bell.wait(Infinity, stop.signal);
});
