/** The deadline holds even if the database, the DHT, the verification of records or the queue stalls. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Deadline, isRonError, sched, sleep } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { addressOf, nameOf, objectOf, openResolving } from './testing/open-resolving.ts';

const BUDGET_MS = 1200;
/** Time that passes after a deadline before the caller is answered: timers fire exactly on the virtual clock. */
const TOLERANCE_MS = 1;

/** How long each step takes; Infinity: it never ends and ignores its signal. */
const delay = fc.oneof(fc.integer({ min: 0, max: 2000 }), fc.constant(Infinity));
const scenario = fc.record({
  database_ms: delay,
  dht_ms: delay,
  /** Whether the DHT obeys its signal, as the driver does. */
  obeys: fc.boolean(),
  hasDht: fc.boolean(),
  adopt_ms: delay,
  workers: fc.integer({ min: 0, max: 2 }),
  isName: fc.boolean(),
  isStored: fc.boolean(),
  calls: fc.array(
    fc.record({ at_ms: fc.integer({ min: 0, max: 1500 }), budget_ms: fc.integer({ min: 1, max: 1200 }) }),
    {
      minLength: 1,
      maxLength: 4,
    },
  ),
});

const after = (delay_ms: number): Promise<void> => {
  const parked = sched.park<void>('step');
  if (delay_ms !== Infinity) sched.timer(delay_ms, () => parked.wake(), 'step');
  return parked.promise;
};

test('[index I-4] every caller is answered within its deadline, even if any step stalls', async () => {
  await fc.assert(
    fc.asyncProperty(scenario, async (given) => {
      const clock = new VirtualSched();
      await clock.during(async () => {
        const address = addressOf('object');
        const answer = async (signal: AbortSignal): Promise<void> => {
          if (given.obeys) await sleep(Math.min(given.dht_ms, 1e9), signal).catch(() => undefined);
          else await after(given.dht_ms);
        };
        const dht = {
          findProviders: async (_: unknown, { signal }: { signal: AbortSignal }) => {
            await answer(signal);
            return { providers: [], complete: false, empty: 'deadline' as const };
          },
          findName: async (_key: string, _label: string, { signal }: { signal: AbortSignal }) => {
            await answer(signal);
            return { values: [new Uint8Array(1)], answers: 1, complete: false, empty: undefined };
          },
        };
        const opened = openResolving({ workers: given.workers, dht: () => (given.hasDht ? dht : undefined) });
        opened.store.gate = () => after(given.database_ms);
        opened.store.adopt_gate = () => after(given.adopt_ms);
        if (given.isStored) {
          opened.store.objects.set(address, objectOf(address, 0));
          opened.store.setName(nameOf({ label: 'a', value: address }));
        }
        const target = given.isName
          ? ({ kind: 'name', label: 'a', key: undefined } as const)
          : ({ kind: 'address', address } as const);
        const late: string[] = [];
        let answered = 0;
        for (const { at_ms, budget_ms } of given.calls) {
          sched.timer(
            at_ms,
            () => {
              const began_ms = sched.now_ms();
              const deadline = Deadline.after('caller', budget_ms);
              const onAnswer = (error?: unknown): void => {
                answered += 1;
                deadline[Symbol.dispose]();
                const took_ms = sched.now_ms() - began_ms;
                if (took_ms > budget_ms + TOLERANCE_MS) late.push(`${took_ms} ms of ${budget_ms}`);
                assert.ok(error === undefined || isRonError(error));
              };
              opened.resolving.lookups
                .find({ lane: '/resolve', target, mode: 'usual', deadline, ip: '::1' })
                .then(() => onAnswer(), onAnswer);
            },
            'call',
          );
        }
        await clock.advance(1500 + BUDGET_MS + TOLERANCE_MS);
        assert.equal(answered, given.calls.length);
        assert.deepEqual(late, []);
        // The disposal ends lookups that hang; it cannot wait for work that never ends.
        opened[Symbol.asyncDispose]().catch(() => undefined);
        await clock.advance(0);
      });
    }),
    { numRuns: 150 },
  );
});
