/** Random histories of the spool against a list for each provider, on a disk that counts its bytes. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { NEVER } from '@ron/kernel';
import { CrashFileSystem } from '@ron/log/testing';
import { deliveryOf, openSpool, takeAll, ulidOf } from './testing/make.ts';
import type { Spool } from './spool.ts';

const BYTES_MAX = 64 * 1024;
const SEGMENT_BYTES = 4096;
const LIMITS = { bytes_max: BYTES_MAX, segment_bytes: SEGMENT_BYTES, deliveries_max: 40 };
const PROVIDERS = ['a', 'b', 'c'] as const;
const ONE = { messages: 1, bytes: 1 };

/** A disk that checks the bound before each operation. */
function boundedDisk(): CrashFileSystem {
  const disk: CrashFileSystem = new CrashFileSystem(new Map(), { before: () => requireBound(disk) });
  return disk;
}

function requireBound(disk: CrashFileSystem): void {
  let bytes = 0;
  for (const content of disk.files().values()) bytes += content.length;
  assert.ok(bytes <= BYTES_MAX, `${bytes} bytes on disk`);
}

type Step =
  | { readonly do: 'append'; readonly provider: number; readonly bytes: number; readonly repeats: boolean }
  | { readonly do: 'send' | 'deliver'; readonly provider: number }
  | { readonly do: 'maintain' | 'reopen' | 'clear' };

const provider = fc.nat(PROVIDERS.length - 1);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({ do: fc.constant('append' as const), provider, bytes: fc.nat(3000), repeats: fc.boolean() }),
  },
  { weight: 6, arbitrary: fc.record({ do: fc.constantFrom('send' as const, 'deliver' as const), provider }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('maintain' as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom('reopen' as const, 'clear' as const) }) },
);

/** The deliveries that the spool must hold: ids of each provider, in order. */
class Reference {
  readonly waiting = new Map<string, number[]>(PROVIDERS.map((name) => [name, []]));

  get count(): number {
    return [...this.waiting.values()].reduce((sum, { length }) => sum + length, 0);
  }
}

async function run(steps: readonly Step[]): Promise<void> {
  const fs = boundedDisk();
  const expected = new Reference();
  let { spool } = await openSpool({ fs, ...LIMITS });
  let n = 0;
  for (const each of steps) {
    if (each.do === 'append') {
      const name = PROVIDERS[each.provider]!;
      const key = each.repeats ? expected.waiting.get(name)![0] : undefined;
      n += 1;
      const result = await spool.append(deliveryOf(n, name, each.bytes, key ?? n), NEVER);
      if (key !== undefined) assert.deepEqual(result, { id: ulidOf(key), duplicate: true });
      else if (result !== 'full') expected.waiting.get(name)!.push(n);
    } else if (each.do === 'send') send(spool, expected, PROVIDERS[each.provider]!);
    else if (each.do === 'deliver') {
      const last = expected.waiting.get(PROVIDERS[each.provider]!)!.pop();
      if (last !== undefined) spool.delivered(ulidOf(last));
    } else if (each.do === 'maintain') await spool.maintain(NEVER);
    else if (each.do === 'clear') await spool.removeSettled(NEVER);
    else {
      await spool.close();
      ({ spool } = await openSpool({ fs, ...LIMITS }));
    }
    assert.equal(spool.count, expected.count);
    for (const name of PROVIDERS) assert.equal(spool.holds(name), expected.waiting.get(name)!.length > 0);
  }
  const left = await takeAll(spool);
  for (const name of PROVIDERS) {
    const ids = left.filter((delivery) => delivery.provider === name).map(({ id }) => id);
    assert.deepEqual(ids, expected.waiting.get(name)!.map(ulidOf), `the order of ${name}`);
  }
  await spool.close();
}

function send(spool: Spool, expected: Reference, name: string): void {
  const [ticket] = spool.take(ONE, (each) => (each === name ? 1 : 0));
  const first = expected.waiting.get(name)!.shift();
  assert.equal(ticket === undefined, first === undefined);
  if (ticket === undefined) return;
  assert.deepEqual(Buffer.from(ticket.id).readUInt32BE(12), first);
  spool.settle([ticket]);
}

test('[interop I-3] no history loses, reorders or repeats a delivery, or exceeds the disk', async () => {
  await fc.assert(fc.asyncProperty(fc.array(step, { maxLength: 150 }), run), { numRuns: 150 });
});

test('a provider whose deliveries stay does not keep the space of the others', async () => {
  const fs = boundedDisk();
  const { spool } = await openSpool({ fs, ...LIMITS });
  let n = 0;
  const stuck: string[] = [];
  for (let round = 0; round < 400; round++) {
    n += 1;
    if (round % 20 === 0 && stuck.length < 18) {
      assert.notEqual(await spool.append(deliveryOf(n, 'a', 700), NEVER), 'full');
      stuck.push(ulidOf(n));
    }
    n += 1;
    assert.notEqual(await spool.append(deliveryOf(n, 'b', 1500), NEVER), 'full', `round ${round}`);
    spool.settle(spool.take(ONE, (name) => (name === 'b' ? 1 : 0)));
    await spool.maintain(NEVER);
  }
  await spool.close();
  const { spool: again } = await openSpool({ fs, ...LIMITS });
  assert.deepEqual(
    (await takeAll(again)).map(({ id }) => id),
    stuck,
  );
  await again.close();
});
