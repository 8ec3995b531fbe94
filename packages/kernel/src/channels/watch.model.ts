/** The promises of Watch under every schedule. The model takes the class, so that a broken one can be put in its place. */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import type { Watch } from './watch.ts';

export interface ChangesInit {
  /** How often the value changes. */
  readonly changes: number;
  readonly receivers: number;
  /** The last thing the writer does: leave it open, or close it. */
  readonly end: readonly ('open' | 'close')[];
}

/** A writer, receivers of whom each wants to see the last value, and a task that cancels their waits at any moment. */
export function changes(Class: typeof Watch, init: ChangesInit): Build {
  return (world) => {
    const watch = new Class('config', 0);
    const cancel = new AbortController();
    const forever = new AbortController().signal;
    /** The values that each receiver saw, the latest last. */
    const seen: number[][] = [];
    /** Who waits, in the order in which they came. */
    const waiting: number[] = [];
    const set: { readonly value: number; readonly turn: number }[] = [];
    /**
     * A value that is set in the same turn may come after the receiver's answer and before its continuation. The next
     * `changed` must give it: a receiver that misses the last value is a deadlock.
     */
    const valueBefore = (turn: number): number => set.findLast((each) => each.turn < turn)?.value ?? 0;

    for (let index = 0; index < init.receivers; index += 1) {
      const receiver = watch.subscribe();
      const own = [0];
      seen.push(own);
      const see = async (signal: AbortSignal): Promise<void> => {
        waiting.push(index);
        try {
          const value = await receiver.changed(signal);
          assert.ok(value > (own.at(-1) as number), `${value} after ${own.at(-1)}: not a change`);
          assert.ok(value >= valueBefore(world.turns()), 'not the latest value');
          own.push(value);
        } finally {
          waiting.splice(waiting.indexOf(index), 1);
        }
      };
      world.task(`receiver ${index}`, async () => {
        while (own.at(-1) !== init.changes) {
          await see(cancel.signal).catch((error: unknown) => {
            // [storage I-5] [kms I-5] [index I-5] [edge I-5] [interop I-5]
            assert.equal(error, cancel.signal.reason);
            return see(forever);
          });
          await world.io('apply');
        }
      });
    }
    world.task('canceller', async () => cancel.abort(new Error('cancelled')));
    world.task('writer', async () => {
      for (let value = 1; value <= init.changes; value += 1) {
        await world.io('reload');
        watch.set(value);
        set.push({ value, turn: world.turns() });
      }
      if (world.choose('end', init.end) === 'close') watch.close();
    });
    return { state: () => [JSON.stringify(seen), waiting, watch.value, cancel.signal.aborted].join(';') };
  };
}
