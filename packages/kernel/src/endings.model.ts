/** A check on the models themselves: cutting schedules by state must lose no way in which a model can end. */
import assert from 'node:assert/strict';
import { assertHolds } from '@ron/explorer';
import type { Build } from '@ron/explorer';

/** The model holds, with and without `hash`, and ends in the same states. For a size at which every schedule can be run. */
export async function assertHashAgrees(build: Build): Promise<void> {
  const [plain, hashed] = [await endings(build, false), await endings(build, true)];
  assert.ok(plain.length > 1, 'a model that can end in one way only shows nothing');
  assert.deepEqual(hashed, plain);
}

async function endings(build: Build, hash: boolean): Promise<string[]> {
  const states = new Set<string>();
  const recorded: Build = (world) => {
    const model = build(world);
    return {
      ...model,
      final: () => {
        states.add(model.state?.() ?? '');
        model.final?.();
      },
    };
  };
  await assertHolds(recorded, { hash });
  return [...states].toSorted();
}
