import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { sched } from '@ron/kernel';
import { NAME_LIFE_S_MAX } from '@ron/proto/names';
import type { StoredRecord } from '../store/index-store.ts';
import { supersedes } from '../store/record-order.ts';
import { isSame, judge, mergeRecord, type Judgement, type NameState } from './rules.ts';
import { fieldsOf } from './signed-record.ts';
import { nameSigner } from './testing.ts';

const alice = nameSigner();
const NOW_S = Math.floor(sched.wall_ms() / 1000);
const KEY = 'cd'.repeat(32);

function judged(record: StoredRecord, current?: StoredRecord, highest: StoredRecord | undefined = current): Judgement {
  return judge({ stored: record, fields: fieldsOf(record) }, current, highest, NOW_S);
}

function refusal(judgement: Judgement): string {
  assert.ok(judgement.verdict === 'conflict' || judgement.verdict === 'invalid', judgement.verdict);
  return `${judgement.verdict}: ${judgement.problem}`;
}

test('a record is published only behind the last one; the same record again succeeds', () => {
  const one = alice.record('a');
  const two = alice.record('a', { after: one });
  assert.equal(judged(one).verdict, 'new');
  assert.equal(judged(two, one).verdict, 'new');
  assert.equal(judged(two, two).verdict, 'same');
  assert.match(refusal(judged(two)), /^conflict: .*knows no record/);
  assert.match(refusal(judged(one, two)), /^conflict: the next seq is 3, not 1/);
  assert.match(refusal(judged(alice.record('a'), one)), /^conflict: the next seq is 2, not 1/);
  assert.match(refusal(judged(alice.record('a', { after: alice.record('a') }), one)), /^conflict: previous/);
  assert.match(refusal(judged(alice.record('a', { after: two }), one)), /^conflict: the next seq is 2, not 3/);
});

test('the highest seq refuses a replay even if its record is gone', () => {
  const one = alice.record('a');
  const two = alice.record('a', { after: one });
  assert.match(refusal(judged(one, undefined, two)), /^conflict: the next seq is 3/);
  assert.equal(judged(alice.record('a', { after: two }), undefined, two).verdict, 'new');
});

test('moved_to is final', () => {
  const moved = alice.record('a', { value: undefined, moved_to: KEY });
  assert.match(refusal(judged(alice.record('a', { after: moved }), moved)), /^conflict: .*final/);
});

test('a known move is never superseded; a record beyond it, and one beside it, are the rival', () => {
  const one = alice.record('a');
  const move = alice.record('a', { after: one, value: undefined, moved_to: KEY });
  const stolen = [alice.record('a', { after: one })];
  for (let seq = 3; seq <= 5; seq += 1) stolen.push(alice.record('a', { after: stolen.at(-1) }));
  for (const thief of stolen) {
    assert.deepEqual(merged(one, move, thief), { record: move, rival: thief });
    assert.deepEqual(merged(one, thief, move), { record: move, rival: thief }, 'a move wins though it arrives later');
  }
  const beyond = alice.record('a', { after: move });
  assert.deepEqual(merged(move, beyond), { record: move, rival: beyond });
  const other = alice.record('a', { after: stolen.at(-1), value: undefined, moved_to: 'ab'.repeat(32) });
  assert.deepEqual(merged(move, other), { record: move, rival: other }, 'nor by another move');
  assert.deepEqual(merged(move, one), { record: move, rival: undefined }, 'an older record is not a fork');
});

test('not_after must lie ahead, by at most two years', () => {
  assert.match(refusal(judged(alice.record('a', { not_after: NOW_S }))), /^invalid: .*past/);
  assert.match(refusal(judged(alice.record('a', { not_after: NOW_S + NAME_LIFE_S_MAX + 1 }))), /^invalid: .*2 years/);
  assert.equal(judged(alice.record('a', { not_after: NOW_S + NAME_LIFE_S_MAX })).verdict, 'new');
});

const merged = (...records: StoredRecord[]): NameState =>
  records.reduce<NameState | undefined>((state, each) => mergeRecord(state, each), undefined)!;

test('two records with one seq are a fork; the smaller hash wins, in either order', () => {
  const [x, y] = [alice.record('a'), alice.record('a')];
  const [winner, loser] = supersedes(x, y) ? [x, y] : [y, x];
  for (const state of [merged(x, y), merged(y, x), merged(x, y, x, y)]) {
    assert.deepEqual(state, { record: winner, rival: loser });
  }
});

test('a previous that contradicts a known record is a fork; a gap is not', () => {
  const one = alice.record('a');
  const two = alice.record('a', { after: one });
  const other = alice.record('a', { after: alice.record('a') });
  assert.deepEqual(merged(one, other), { record: other, rival: one });
  assert.deepEqual(merged(other, one), { record: other, rival: one });
  assert.deepEqual(merged(one, two), { record: two, rival: undefined });
  const four = alice.record('a', { after: alice.record('a', { after: other }) });
  assert.deepEqual(merged(one, four), { record: four, rival: undefined }, 'a gap');
  assert.deepEqual(merged(four, one), { record: four, rival: undefined });
});

test('a conflict ends with the next clean record, and its records do not begin it again', () => {
  const [x, y] = [alice.record('a'), alice.record('a')];
  const forked = merged(x, y);
  const clean = alice.record('a', { after: forked.record });
  const state = mergeRecord(forked, clean);
  assert.deepEqual(state, { record: clean, rival: undefined });
  assert.deepEqual(mergeRecord(state, forked.rival!, { past: [forked.record, forked.rival!], isOwn: true }), state);
  const onTheRival = alice.record('a', { after: forked.rival });
  assert.deepEqual(mergeRecord(forked, onTheRival), { record: onTheRival, rival: forked.record });
});

test('an older record on another branch is a fork, even if the current one is far ahead', () => {
  const one = alice.record('a');
  const [a2, b2] = [alice.record('a', { after: one }), alice.record('a', { after: one })];
  const b3 = alice.record('a', { after: b2 });
  const b4 = alice.record('a', { after: b3 });
  const published = { past: [b3, b2, one], isOwn: true };
  assert.deepEqual(mergeRecord({ record: b4, rival: undefined }, a2, published), { record: b4, rival: a2 });
  for (const old of published.past) {
    assert.deepEqual(mergeRecord({ record: b4, rival: undefined }, old, published), { record: b4, rival: undefined });
  }
  // The other publisher jumps from a2 to b4, then a missing record arrives.
  const jumped = mergeRecord({ record: a2, rival: undefined }, b4, { past: [one], isOwn: false });
  assert.deepEqual(jumped, { record: b4, rival: undefined }, 'a gap in a name of others');
  for (const [missing, rival] of [
    [b3, a2],
    [b2, b2],
  ] as const) {
    assert.deepEqual(mergeRecord(jumped, missing, { past: [a2, one], isOwn: false }), { record: b4, rival });
  }
});

test('a gap behind a record that was published here is reported until a clean record or the link is known', () => {
  const own = { past: [], isOwn: true };
  const one = alice.record('a');
  const two = alice.record('a', { after: one });
  const three = alice.record('a', { after: two });
  const jumped = mergeRecord({ record: one, rival: undefined }, three, own);
  assert.deepEqual(jumped, { record: three, rival: one });
  assert.deepEqual(mergeRecord(jumped, two, own), { record: three, rival: undefined }, 'the link');
  const other = alice.record('a', { after: one });
  assert.deepEqual(mergeRecord(jumped, other, own), jumped, 'not the link');
  const four = alice.record('a', { after: three });
  assert.deepEqual(mergeRecord(jumped, four, own), { record: four, rival: undefined }, 'a clean record');
  const nine = alice.record('a', { seq: 9, previous: KEY });
  assert.deepEqual(mergeRecord(jumped, nine, own), { record: nine, rival: one }, 'the own record stays the evidence');
});

test('the current record does not depend on the order of arrival', () => {
  const first = [alice.record('a'), alice.record('a')];
  const second = first.flatMap((after) => [alice.record('a', { after }), alice.record('a', { after })]);
  const third = second.slice(0, 3).map((after) => alice.record('a', { after }));
  const all = [...first, ...second, ...third];
  fc.assert(
    fc.property(fc.shuffledSubarray(all, { minLength: 1 }), (records) => {
      const state = merged(...records);
      assert.ok(records.every((each) => isSame(each.hash, state.record.hash) || supersedes(state.record, each)));
      const isForked = records.filter(({ seq }) => seq === state.record.seq).length > 1;
      if (isForked) assert.notEqual(state.rival, undefined, 'two records with the highest seq are always a conflict');
    }),
  );
});
