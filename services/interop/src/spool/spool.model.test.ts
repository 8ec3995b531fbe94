/** The spool against its drainer, under every schedule, and a start after every crash. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { assertHoldsWithin, mutant, type Options } from '@ron/explorer';
import { SpoolCrashes, spoolAgainstDrain, type SpoolParts, type SpoolShape } from './spool.model.ts';
import { SpoolDrainer } from './spool-drainer.ts';
import { Spool } from './spool.ts';

const urlOf = (path: string): string => new URL(path, import.meta.url).href;
/** No promise about time, and Node does not delay wake-ups. */
const BOUNDS = { lags: 0, delayed: false } as const;
/** Of larger models. */
const ONE_STEP = { ...BOUNDS, turn_max: 1 } as const;

async function check(
  t: Pick<TestContext, 'diagnostic'>,
  parts: SpoolParts,
  shape: SpoolShape,
  bounds: Options = ONE_STEP,
): Promise<void> {
  const crashes = new SpoolCrashes();
  await assertHoldsWithin(t, spoolAgainstDrain(parts, shape, crashes), { name: 'spool against drain', ...bounds });
  await crashes.check(parts);
  t.diagnostic(`${crashes.size} crashes`);
}

for (const [shape, bounds] of [
  [{ deliveries: 1, faults: 2 }, BOUNDS],
  [{ deliveries: 2, faults: 1 }, ONE_STEP],
  [
    { deliveries: 3, faults: 1 },
    { ...ONE_STEP, preemptions: 2 },
  ],
] as const)
  test(`[interop I-2] [interop I-5] ${shape.deliveries} deliveries, ${shape.faults} faults of mailbox: none is lost, in order`, (t) =>
    check(t, { Spool, SpoolDrainer }, shape, bounds));

interface Bug {
  readonly bug: string;
  readonly file: './spool.ts' | './spool-drainer.ts' | './store/spool-log.ts' | './spool-appends.ts';
  readonly find: string;
  readonly replace: string;
  readonly caught: RegExp;
  /** Default: two deliveries, one fault. */
  readonly shape?: SpoolShape;
}

const BUGS: readonly Bug[] = [
  {
    bug: 'an append is answered before the sync',
    file: './spool-appends.ts',
    find: 'await log.append([{ ...record, context: pending }], signal);',
    replace: 'await log.append([{ ...record, context: pending }], signal, { durable: false });',
    caught: /lost|drained/,
  },
  {
    bug: 'a delivery that is being written does not hold its provider',
    file: './spool.ts',
    find: 'return this.#state.queues.get(provider) !== undefined;',
    replace: 'const queue = this.#state.queues.get(provider); return queue !== undefined && queue.count > 1;',
    caught: /overtook|out of order/,
  },
  {
    bug: 'a sent delivery stays in the spool',
    file: './spool-drainer.ts',
    find: 'this.#init.spool.settle(settled);',
    replace: 'void settled;',
    caught: /sent again/,
  },
  {
    bug: 'a delivery that a late call stored while it was read is sent',
    file: './spool-drainer.ts',
    find: 'loaded.filter(({ ticket }) => spool.has(ticket))',
    replace: 'loaded',
    caught: /sent again/,
    shape: { deliveries: 1, faults: 1 },
  },
  {
    bug: 'a failed call settles the batch',
    file: './spool-drainer.ts',
    find: 'if (results === undefined) return',
    replace: 'if (results === undefined) spool.settle(tickets); if (results === undefined) return',
    caught: /lost|out of order/,
    shape: { deliveries: 1, faults: 2 },
  },
  {
    bug: 'a start forgets deliveries',
    file: './store/spool-log.ts',
    find: 'this.#state.addReplayed(',
    replace: 'void (',
    caught: /after a crash an accepted delivery is lost/,
  },
];

async function broken({ file, find, replace }: Bug): Promise<SpoolParts> {
  if (file === './spool-drainer.ts')
    return { Spool, ...(await mutant<Pick<SpoolParts, 'SpoolDrainer'>>(urlOf(file), find, replace)) };
  if (file === './spool.ts')
    return { SpoolDrainer, ...(await mutant<Pick<SpoolParts, 'Spool'>>(urlOf(file), find, replace)) };
  const init = { entry: urlOf('./spool.ts'), through: [] };
  return { SpoolDrainer, ...(await mutant<Pick<SpoolParts, 'Spool'>>(urlOf(file), find, replace, init)) };
}

for (const bug of BUGS)
  test(`the model catches: ${bug.bug}`, async () => {
    const parts = await broken(bug);
    const shape = bug.shape ?? { deliveries: 2, faults: 1 };
    await assert.rejects(check({ diagnostic: () => undefined }, parts, shape), bug.caught);
  });
