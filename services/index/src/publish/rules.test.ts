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

const NEVER_RESOLVED = (): boolean => false;
const merged = (...records: StoredRecord[]): NameState =>
  records.reduce<NameState | undefined>((state, each) => mergeRecord(state, each, NEVER_RESOLVED), undefined)!;

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
  const state = mergeRecord(forked, clean, NEVER_RESOLVED);
  assert.deepEqual(state, { record: clean, rival: undefined });
  assert.deepEqual(
    mergeRecord(state, forked.rival!, () => true),
    state,
  );
  const onTheRival = alice.record('a', { after: forked.rival });
  assert.deepEqual(mergeRecord(forked, onTheRival, NEVER_RESOLVED), { record: onTheRival, rival: forked.record });
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
