import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { MemoryVolume } from '@ron/cas';
import fc from 'fast-check';
import { placeShards } from './shard-placement.ts';
import { Member } from '../membership/member.ts';
import { mostInDomain, Placement } from './placement.ts';

const idOf = (number: number): Uint8Array => blake3(Buffer.from(`shard ${number}`));

function memberIn(domain: string, number: number): Member {
  const volume = new MemoryVolume({ name: `v${number}`, bytes_max: 1000 });
  const member = new Member({ volume });
  member.join('active');
  Object.defineProperty(member, 'domain', { value: domain });
  return member;
}

test('each shard has a volume of its own, and the domains share the shards evenly', () => {
  const domains = fc.array(fc.constantFrom('x', 'y', 'z', 'w'), { minLength: 3, maxLength: 12 });
  fc.assert(
    fc.property(domains, fc.integer({ min: 2, max: 12 }), fc.array(fc.nat(11)), fc.nat(), (all, count, held, seed) => {
      fc.pre(count <= all.length);
      const members = all.map(memberIn);
      const ids = Array.from({ length: count }, (_, index) => idOf(seed + index));
      const holderOf = (index: number): Member | undefined => members[held[index] ?? -1];
      const homes = placeShards({
        placement: new Placement(members),
        ids,
        holdersOf: (id) => {
          const holder = holderOf(ids.indexOf(id));
          return holder === undefined ? [] : [holder];
        },
      });
      assert.equal(new Set(homes).size, count);
      const sizes = [...Map.groupBy(homes, (member) => member.domain).values()].map((each) => each.length);
      assert.ok(Math.max(...sizes) <= mostInDomain(members, count), sizes.join());
    }),
  );
});

test('contents on different domains stay where they are', () => {
  const members = ['x', 'y', 'z', 'x', 'y', 'z'].map(memberIn);
  const ids = [0, 1, 2, 3].map(idOf);
  const homes = placeShards({
    placement: new Placement(members),
    ids,
    holdersOf: (id) => (ids.indexOf(id) < 3 ? [members[ids.indexOf(id) + 1]!] : []),
  });
  assert.deepEqual(homes.slice(0, 3), members.slice(1, 4));
});
