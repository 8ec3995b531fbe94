/** A volume is known by its id, wherever its directory lies. */
import assert from 'node:assert/strict';
import { cpSync, renameSync, rmSync } from 'node:fs';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { RecordType, type NewRecord } from '@ron/cas';
import { Directories } from '../testing/directories.ts';

const { signal } = new AbortController();
const RF3 = { replication_factor: 3, write_min: 2 };
const payload = Buffer.from('x');
const X: NewRecord = { type: RecordType.object, id: blake3(payload), payload, meta: Buffer.from('a/b') };
const REMOVE_X: NewRecord = { type: RecordType.remove, id: X.id, payload: new Uint8Array(0) };
const ALL = ['a', 'b', 'c'];

function move(directories: Directories, from: string, to: string): void {
  renameSync(directories.dir(from), directories.dir(to));
}

/** Puts a copy of a directory, made before, in its place. */
function putBack(directories: Directories, copy: string, to: string): void {
  rmSync(directories.dir(to), { recursive: true });
  move(directories, copy, to);
}

for (const [what, places] of [
  ['moved', ['d', 'e', 'f']],
  ['swapped', ['b', 'c', 'a']],
] as const) {
  test(`${what} directories keep their identity, and the decisions about them`, async () => {
    using directories = new Directories();
    let ids: string[] = [];
    {
      await using set = await directories.open(ALL, { replication_factor: 1 });
      await set.lifecycle.drain('b', signal);
      await set.lifecycle.setAbandoned(set.member('c').id, true, signal);
      ids = set.members.map((member) => member.id);
    }
    for (const name of ALL) move(directories, name, `moving-${name}`);
    for (const [index, name] of ALL.entries()) move(directories, `moving-${name}`, places[index]!);
    for (let start = 0; start < 2; start++) {
      await using set = await directories.open(places.toReversed(), { replication_factor: 1 });
      assert.deepEqual(
        places.map((name) => set.member(name).id),
        ids,
      );
      const { members, draining, lost, seen } = set.membership.roster;
      assert.deepEqual([members, draining, lost], [ids, [ids[1]], [ids[2]]]);
      assert.ok(set.members.every((member) => member.isCurrent));
      assert.equal(set.member(places[1]).status, 'draining');
      assert.deepEqual(
        ids.map((id) => seen[id]?.dir),
        places,
      );
      assert.deepEqual(set.membership.absent(), []);
    }
  });
}

test('an older copy in the place of a volume is stale until it is reconciled, and then stays current over restarts', async () => {
  using directories = new Directories();
  {
    await using set = await directories.open(ALL, RF3);
    await set.put([X], signal);
  }
  cpSync(directories.dir('c'), directories.dir('backup'), { recursive: true });
  {
    await using set = await directories.open(ALL, RF3);
    await set.put([REMOVE_X], signal);
  }
  putBack(directories, 'backup', 'c');
  {
    await using set = await directories.open(ALL, RF3);
    assert.deepEqual(
      ALL.map((name) => set.member(name).isCurrent),
      [true, true, false],
    );
    assert.ok(!set.has('object', X.id));
    assert.equal(await set.reconcileStale(signal), 1);
    assert.ok(set.member('c').volume.wasRemoved(X.id));
  }
  await using set = await directories.open(ALL, RF3);
  assert.ok(set.members.every((member) => member.isCurrent));
  assert.ok(!set.has('object', X.id));
});

test('an older copy is stale by its epoch alone, even if it has every decision', async () => {
  using directories = new Directories();
  await (await directories.open(ALL, RF3)).close();
  cpSync(directories.dir('c'), directories.dir('backup'), { recursive: true });
  for (let start = 0; start < 3; start++) await (await directories.open(ALL, RF3)).close();
  putBack(directories, 'backup', 'c');
  // The first start strikes it off durably.
  for (let start = 0; start < 2; start++) {
    await using set = await directories.open(ALL, RF3);
    assert.deepEqual(
      ALL.map((name) => set.member(name).isCurrent),
      [true, true, false],
    );
    if (start === 1) assert.equal(await set.reconcileStale(signal), 1);
  }
  // Its epoch is still below that of the lost original.
  await using set = await directories.open(ALL, RF3);
  assert.ok(set.members.every((member) => member.isCurrent));
});

test('a copy of a volume beside it is refused', async () => {
  using directories = new Directories();
  await (await directories.open(['a', 'b'], { replication_factor: 2 })).close();
  cpSync(directories.dir('a'), directories.dir('copy'), { recursive: true });
  await using set = await directories.open(['a', 'b'], { replication_factor: 2 });
  await using copy = await directories.volume('copy');
  assert.throws(() => set.lifecycle.add({ volume: copy }), /it is the same volume as a \(/);
  assert.equal(set.members.length, 2);
});
