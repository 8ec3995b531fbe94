import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryVolume } from '@ron/cas';
import fc from 'fast-check';
import { walkIds } from './id-walk.ts';
import { Member } from '../membership/member.ts';

const { signal } = new AbortController();

/** Ids of three bytes that vary, at the beginning, after the part that is compared as numbers, and at the end. */
const ids = fc
  .tuple(fc.nat(3), fc.nat(3), fc.nat(3))
  .map(([first, middle, last]) =>
    Buffer.from(
      Uint8Array.from({ length: 32 }, (_, at) =>
        at === 0 ? first * 80 : at === 9 ? middle * 80 : at === 31 ? last : 7,
      ),
    ),
  );
const sets = fc.uniqueArray(ids, { selector: (id) => id.toString('hex'), maxLength: 20 });

class ListedVolume extends MemoryVolume {
  readonly #lists: Record<string, readonly Buffer[]>;

  constructor(name: string, lists: Record<string, readonly Buffer[]>) {
    super({ name, bytes_max: 1 });
    this.#lists = lists;
  }

  override listIds(kind: string, after: Uint8Array | undefined, into: Buffer): Promise<number> {
    const sorted = (this.#lists[kind] ?? []).toSorted((a, b) => Buffer.compare(a, b));
    // Small pages: a page has as many as are asked for, or fewer.
    const page = sorted.filter((id) => after === undefined || Buffer.compare(id, after) > 0).slice(0, 3);
    page.forEach((id, at) => into.set(id, at * 32));
    return Promise.resolve(page.length);
  }
}

test('every id is visited once, in order, with all its holders, from any start', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(sets, sets), { minLength: 1, maxLength: 4 }),
      fc.option(ids),
      async (held, from) => {
        const members = held.map(
          ([content, shard], index) => new Member({ volume: new ListedVolume(`v${index}`, { content, shard }) }),
        );
        const seen: string[] = [];
        await walkIds({
          members,
          kind: 'content',
          also: 'shard',
          after: from ?? undefined,
          isFine: () => false,
          visit: (id, holders, also) => void seen.push(`${Buffer.from(id).toString('hex')} ${holders} ${also}`),
          onFailure: () => assert.fail('all can be listed'),
          signal,
        });
        const masks = new Map<string, [number, number]>();
        for (const [index, lists] of held.entries()) {
          for (const [which, list] of lists.entries()) {
            for (const id of list) {
              const mask = masks.get(id.toString('hex')) ?? [0, 0];
              mask[which]! |= 1 << index;
              masks.set(id.toString('hex'), mask);
            }
          }
        }
        const expected = [...masks.keys()]
          .toSorted()
          .filter((id) => from === null || id > from.toString('hex'))
          .map((id) => `${id} ${masks.get(id)!.join(' ')}`);
        assert.deepEqual(seen, expected);
      },
    ),
  );
});

test('only ids that need attention are visited, and a volume that cannot be listed is left out', async () => {
  const all = [1, 2, 3].map((first) => Buffer.alloc(32, first));
  const good = new ListedVolume('good', { content: all });
  const bad = new ListedVolume('bad', { content: all });
  bad.listIds = () => Promise.reject(new Error('EIO'));
  const seen: number[] = [];
  const failed: string[] = [];
  await walkIds({
    members: [good, bad].map((volume) => new Member({ volume })),
    kind: 'content',
    isFine: (holders) => {
      assert.equal(holders, 1);
      return seen.length > 0;
    },
    visit: (id) => void seen.push(id[0]!),
    onFailure: (member) => failed.push(member.name),
    signal,
  });
  assert.deepEqual([seen, failed], [[1], ['bad']]);
});
