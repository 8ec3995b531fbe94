/** A volume is what it holds, not where it lies. */
import assert from 'node:assert/strict';
import { cpSync, renameSync, rmSync } from 'node:fs';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { RecordType, type NewRecord } from '@ron/cas';
import { Directories } from './testing/directories.ts';

const { signal } = new AbortController();
const RF3 = { replication_factor: 3, write_min: 2 };
const NOTHING = new Uint8Array(0);
const payload = Buffer.from('x');
const X: NewRecord = { type: RecordType.object, id: blake3(payload), payload, meta: Buffer.from('a/b') };
const REMOVE_X: NewRecord = { type: RecordType.remove, id: X.id, payload: NOTHING };

/** `X` was removed on a, b and c, and then c was put back to what it was before. */
async function removedButOn_c(directories: Directories): Promise<void> {
  {
    await using set = await directories.open(['a', 'b', 'c'], RF3);
    await set.put([X], signal);
  }
  cpSync(directories.dir('c'), directories.dir('backup'), { recursive: true });
  {
    await using set = await directories.open(['a', 'b', 'c'], RF3);
    await set.put([REMOVE_X], signal);
  }
  rmSync(directories.dir('c'), { recursive: true });
  move(directories, 'backup', 'c');
}

function move(directories: Directories, from: string, to: string): void {
  renameSync(directories.dir(from), directories.dir(to));
}

test('when all volumes lie elsewhere, an old one among them does not bring back what was removed', async () => {
  for (const names of [
    ['d', 'e', 'f'],
    ['b', 'c', 'a'],
  ]) {
    using directories = new Directories();
    await removedButOn_c(directories);
    for (const name of ['a', 'b', 'c']) move(directories, name, `moving-${name}`);
    for (const [i, name] of ['a', 'b', 'c'].entries()) move(directories, `moving-${name}`, names[i]!);
    {
      await using set = await directories.open(names.toReversed(), RF3);
      assert.deepEqual(set.membership.roster.members.toSorted(), names.toSorted(), 'nobody is missed who is here');
      assert.deepEqual(
        names.map((name) => set.member(name).isCurrent),
        [true, true, false],
      );
      assert.ok(!set.has('object', X.id));
      assert.equal(await set.settle(signal), 1);
      assert.ok(set.member(names[2]!).volume.wasRemoved(X.id));
    }
    await using set = await directories.open(names, RF3);
    assert.ok(set.members.every((member) => member.isCurrent));
    assert.ok(!set.has('object', X.id));
  }
});

test('what was decided about a volume goes where it goes', async () => {
  using directories = new Directories();
  const init = { replication_factor: 1 };
  {
    await using set = await directories.open(['a', 'b', 'c'], init);
    await set.life.drain('b', signal);
    await set.life.giveUp('c', true, signal);
  }
  move(directories, 'c', 'elsewhere');
  move(directories, 'b', 'c');
  move(directories, 'a', 'b');
  await using set = await directories.open(['b', 'c'], init);
  const { members, draining, lost } = set.membership.roster;
  assert.deepEqual([members, draining, lost], [['b', 'c'], ['c'], []]);
  assert.equal(set.member('c').life, 'draining');
});

test('a copy of a volume beside it is a new volume', async () => {
  using directories = new Directories();
  {
    await using set = await directories.open(['a', 'b'], { replication_factor: 2 });
    await set.put([X], signal);
  }
  cpSync(directories.dir('a'), directories.dir('copy'), { recursive: true });
  await using set = await directories.open(['copy', 'a', 'b'], { replication_factor: 2 });
  assert.deepEqual(set.membership.roster.members, ['a', 'b']);
  assert.deepEqual(
    set.members.map((member) => member.isCurrent),
    [false, true, true],
  );
  assert.equal(await set.settle(signal), 1);
});
