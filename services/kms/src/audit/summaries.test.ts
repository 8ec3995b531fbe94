import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countOf, encodeSummary, ENTRY_BYTES_MAX, type AuditEvent } from './event.ts';
import { Summaries } from './summaries.ts';

const event = (init: Partial<AuditEvent> = {}): AuditEvent => ({
  op: 'verify',
  tenant: 'acme',
  kid: 'acme/docs/ed25519/0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10#v1',
  alg: 'ed25519',
  purpose: 'docs',
  time_ms: 1,
  result: 'ok',
  actor: 'a',
  subject: 's',
  chain: [],
  ...init,
});
const total = (summaries: Summaries, asOne = false): number =>
  summaries.take(asOne).reduce((sum, each) => sum + countOf(each), 0);

test('up to the rate each operation has an entry of its own, by key', () => {
  const summaries = new Summaries(() => 3);
  const turns = Array.from({ length: 5 }, () => summaries.takeTurn('acme'));
  assert.deepEqual(turns, [true, true, true, false, false]);
  assert.equal(summaries.takeTurn('zoo'), true);
  assert.equal(new Summaries(() => 0).takeTurn('acme'), false);
});

test('a summary is canonical JSON with the counts by result and some of the keys', () => {
  const summaries = new Summaries(() => 0);
  for (let at = 0; at < 20; at++) summaries.add(event({ time_ms: 100 - at, kid: `k${at}` }));
  summaries.add(event({ result: 'not_verified', time_ms: 200, kid: 'k0' }));
  summaries.add(event({ op: 'sign', result: 'forbidden', tenant: 'zoo', kid: 'z' }));
  const [acme, zoo, ...none] = summaries.take(false).map((each) => encodeSummary(each).toString());
  assert.equal(none.length, 0);
  const read = JSON.parse(acme!) as Record<string, unknown>;
  assert.deepEqual(Object.keys(read), Object.keys(read).toSorted());
  assert.equal(JSON.stringify(read), acme);
  assert.deepEqual([read['op'], read['count'], read['from'], read['to']], ['summary', 21, 81, 200]);
  assert.deepEqual(read['results'], { 'verify not_verified': 1, 'verify ok': 20 });
  assert.equal((read['kids'] as string[]).length, 8);
  assert.match(zoo!, /"results":\{"sign forbidden":1\}.*"tenant":"zoo"/);
  assert.ok(summaries.isEmpty);
});

test('the number of counters is bounded, and no operation is unaccounted', () => {
  const summaries = new Summaries(() => 0);
  for (let at = 0; at < 2000; at++)
    summaries.add(event({ actor: `a${at % 700}`, tenant: `t${at % 500}`, result: `r${at % 90}` }));
  const taken = summaries.take(false);
  assert.ok(taken.length <= 256 + 64 + 1, `${taken.length} counters`);
  assert.equal(
    taken.reduce((sum, each) => sum + countOf(each), 0),
    2000,
  );
  for (const each of taken) assert.ok(encodeSummary(each).length < ENTRY_BYTES_MAX / 8);
  summaries.restore(taken);
  assert.equal(total(summaries, true), 2000);
  for (let at = 0; at < 5000; at++) summaries.takeTurn(`t${at}`);
  assert.equal(new Summaries(() => 1).takeTurn('t'), true);
});

test('with little room all counters become one', () => {
  const summaries = new Summaries(() => 0);
  for (const tenant of ['acme', 'zoo']) summaries.add(event({ tenant }));
  const [one, ...none] = summaries.take(true);
  assert.deepEqual([none.length, one!.tenant, one!.actor, countOf(one!)], [0, '*', '*', 2]);
});
