/** The findings about index. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadFindings, nameFindings } from './index-service.ts';

const NOW_MS = 1_800_000_000_000;
const DAY_S = 24 * 3600;

const metrics = (busy_s: number, refused = 0): string =>
  [
    'tasks_spawned_total{kind="resolver"} 33',
    'tasks_restarted_total{kind="resolver"} 1',
    `process_start_time_seconds ${NOW_MS / 1000 - 100}`,
    `resolve_latency_seconds_sum ${busy_s}`,
    `busy_rejections_total{route="/resolve"} ${refused}`,
    `busy_rejections_total{route="/providers"} ${refused}`,
  ].join('\n');

test('the load is the time of all lookups by the uptime and the resolvers', () => {
  // 100 s of uptime and 32 resolvers: 3200 s of work are a load of 1.
  assert.deepEqual(loadFindings(metrics(320), NOW_MS), [{ level: 'ok', what: '32 resolvers of index, 10 % busy' }]);
  assert.equal(loadFindings(metrics(0.7 * 3200), NOW_MS)[0]!.level, 'ok');
  assert.deepEqual(loadFindings(metrics(2800), NOW_MS), [
    { level: 'warn', what: '32 resolvers of index, 88 % busy', fix: 'set index.resolvers to 40 or more' },
  ]);
});

test('refused requests are reported, of all routes together', () => {
  assert.match(loadFindings(metrics(0, 3), NOW_MS)[1]!.what, /^index refused 6 requests/);
});

test('names that expire within 30 days are listed, the first one first', () => {
  const at = (label: string, days: number) => ({ label, not_after: NOW_MS / 1000 + days * DAY_S });
  assert.deepEqual(nameFindings([], NOW_MS), []);
  assert.deepEqual(nameFindings([at('a', 30), at('b', 300)], NOW_MS), [
    { level: 'ok', what: '2 names, none expires within 30 days' },
  ]);
  assert.deepEqual(nameFindings([at('a', 29.5), at('b', 300), at('c', -1)], NOW_MS), [
    { level: 'warn', what: 'name c has expired', fix: 'ron name renew c' },
    { level: 'warn', what: 'name a expires in 29 days', fix: 'ron name renew a' },
  ]);
  const many = Array.from({ length: 25 }, (_, index) => at(`n${index}`, 1));
  assert.equal(nameFindings(many, NOW_MS).at(-1)!.what, '5 more names expire soon');
});
