/** A power cut at any moment, including the first start: the vault opens, is sound, and has everything acknowledged. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { doOnce, log, Machine, makeKey, sign } from './testing.ts';
import type { Vault } from './vault.ts';

const IMAGES_MAX = 8;
/** One in so many images is opened a second time. */
const AGAIN_EVERY = 3;

/** The acknowledged state after so many disk operations. */
interface Acknowledged {
  readonly at: number;
  readonly entries: number;
  readonly signed: number;
  readonly keys: number;
  readonly done: number;
}

function randomFrom(seed: number): () => number {
  let state = seed;
  return () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
}

async function write(machine: Machine): Promise<Acknowledged[]> {
  const acknowledged: Acknowledged[] = [];
  const vault = await machine.open();
  const tell = (): void => {
    const { size, checkpoint } = vault.log!;
    const [keys, done] = [vault.registry.index.size, vault.ledger.size];
    // A change of the store alone is acknowledged before the next operation of the disk.
    const at = machine.disk.operations + 1;
    acknowledged.push({ at, entries: size, signed: checkpoint?.size ?? 0, keys, done });
  };
  const steps: ((round: number) => Promise<unknown>)[] = [
    () => log(vault, 2),
    () => sign(vault),
    (round) => makeKey(vault, round),
    (round) => doOnce(vault, `op ${round}`, 'done'),
    () => log(vault, 1),
    () => sign(vault),
  ];
  tell();
  for (const round of [1, 2]) {
    for (const step of steps) {
      await step(round);
      tell();
    }
  }
  await vault.close();
  return acknowledged;
}

async function assertGoesOn(vault: Vault, known: Acknowledged | undefined, point: number): Promise<void> {
  assert.equal(vault.problem, undefined, `after ${point} operations`);
  assert.ok(vault.log!.size >= (known?.entries ?? 0), 'an acknowledged entry is lost');
  assert.ok((vault.log!.checkpoint?.size ?? 0) >= (known?.signed ?? 0), 'a published checkpoint is lost');
  assert.ok(vault.registry.index.size >= (known?.keys ?? 0), 'a key is lost');
  assert.ok(vault.ledger.size >= (known?.done ?? 0), 'an operation is lost');
  await log(vault);
  await sign(vault);
}

test('after a power cut at any moment the next start is sound and usable, and so is the one after', async () => {
  const machine = new Machine();
  const acknowledged = await write(machine);
  const random = randomFrom(11);
  let images = 0;
  for (let point = 0; point <= machine.disk.operations; point++) {
    const known = acknowledged.findLast(({ at }) => at <= point);
    for (const image of machine.imagesAt(point, IMAGES_MAX, random)) {
      images += 1;
      const after = new Machine(image);
      const vault = await after.open();
      await assertGoesOn(vault, known, point);
      await vault.close();
      if (images % AGAIN_EVERY > 0) continue;
      const again = await after.open();
      assert.equal(again.problem, undefined, `after ${point} operations and a start`);
      await again.close();
    }
  }
  assert.ok(images > 120, `only ${images} states were tried`);
});
