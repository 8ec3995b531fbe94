/** Webhooks from the provider to the worker that applies them, under every schedule. */
import { test } from 'node:test';
import { assertCaught, assertHoldsWithin, mutant } from '@ron/explorer';
import { DeliveryRecorder } from '../deliveries/delivery-recorder.ts';
import { appliedOnce, type AppliedParts, type AppliedShape } from './applied-once.model.ts';
import { Sender } from './sender.ts';

/** No promise about time, and Node does not delay wake-ups. */
const BOUNDS = { lags: 0, delayed: false, turn_max: 1 } as const;
const urlOf = (path: string): string => new URL(path, import.meta.url).href;

for (const [shape, bounds] of [
  [
    { webhooks: 1, faults: 2 },
    { ...BOUNDS, preemptions: 1 },
  ],
  [
    { webhooks: 2, faults: 1 },
    { ...BOUNDS, preemptions: 0 },
  ],
] as const)
  test(`${shape.webhooks} webhooks, ${shape.faults} faults: each is applied once, and each request recorded once`, async (t) => {
    const model = appliedOnce({ Sender, DeliveryRecorder }, shape);
    await assertHoldsWithin(t, model, { name: 'applied once', ...bounds });
  });

interface Bug {
  readonly bug: string;
  readonly file: string;
  /** Between the sender and the changed file. */
  readonly through?: readonly string[];
  readonly find: string;
  readonly replace: string;
  readonly caught: RegExp;
}

const ONE_FAULT: AppliedShape = { webhooks: 1, faults: 1 };
const BUGS: readonly Bug[] = [
  {
    bug: 'messages have no idempotency key',
    file: '../mailbox/delivery.ts',
    through: ['./placement.ts'],
    find: 'return { topic, id, idempotency_key, headers, payload };',
    replace: 'void idempotency_key; return { topic, id, headers, payload };',
    caught: /applied twice/,
  },
  {
    bug: 'a delivery that mailbox did not take is answered without the spool',
    file: './placement.ts',
    find: 'return { stored: [], unsent: entries };',
    replace:
      "return { unsent: [], stored: entries.map((entry) => ({ entry, accepted: { receipt: receipts.add(entry.verified.receipt), duplicate: false, place: 'spool' as const } })) };",
    caught: /an accepted webhook is not applied/,
  },
  {
    bug: 'a duplicate is not recorded',
    file: '../deliveries/delivery-recorder.ts',
    find: 'audit.pushDropOldest(',
    replace: "if (delivery.outcome !== 'duplicate') audit.pushDropOldest(",
    caught: /a request is not recorded/,
  },
];

for (const { bug, file, through = [], find, replace, caught } of BUGS)
  test(`the model catches: ${bug}`, async () => {
    const isRecorder = file.endsWith('recorder.ts');
    const init = isRecorder ? {} : { entry: urlOf('./sender.ts'), through: through.map(urlOf) };
    const broken = await mutant<Partial<AppliedParts>>(urlOf(file), find, replace, init);
    await assertCaught(appliedOnce({ Sender, DeliveryRecorder, ...broken }, ONE_FAULT), BOUNDS, caught);
  });
