/** The queue and the sender against a stop, under every schedule. */
import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { Sender } from './sender.ts';
import { senderAgainstStop, type SenderShape } from './sender.model.ts';

const SHAPES: readonly SenderShape[] = [
  { deliveries: 2, stops: true, mailbox: 'sound' },
  { deliveries: 2, stops: false, mailbox: 'fails' },
  { deliveries: 2, stops: false, mailbox: 'slow' },
];

for (const shape of SHAPES) {
  const { deliveries, stops, mailbox } = shape;
  const name = `${deliveries} webhooks, mailbox ${mailbox}${stops ? ', and a stop' : ''}`;
  test(`[interop I-3] [interop I-5] [interop I-6] [interop I-8] [interop I-9] ${name}: each is stored or refused`, async (t) => {
    // With a stop there are too many schedules without a reduction by state.
    const smaller = senderAgainstStop(Sender, { ...shape, deliveries: 1 });
    const { schedules } = await assertHolds(senderAgainstStop(Sender, shape), {
      name,
      ...(stops ? { hash: true, smaller } : { sleepSets: true }),
    });
    t.diagnostic(`${schedules} schedules`);
  });
}

const BUGS: readonly {
  readonly bug: string;
  /** Default: sender.ts. */
  readonly file?: './placement.ts';
  readonly find: string;
  readonly replace: string;
  readonly shape: SenderShape;
  readonly caught: 'deadlock' | RegExp;
}[] = [
  {
    bug: 'the sender answers before the receipts are durable',
    find: 'await receipts.write();',
    replace: 'void receipts.write();',
    shape: { deliveries: 1, stops: false, mailbox: 'sound' },
    caught: /an accepted delivery has no receipt/,
  },
  {
    bug: 'a delivery that mailbox did not take is answered without the spool',
    file: './placement.ts',
    find: 'return await this.#spoolAll(entries);',
    replace:
      "return entries.map((entry) => ({ entry, accepted: { receipt: this.#receipts.add(entry.verified.receipt), duplicate: false, place: 'spool' as const } }));",
    shape: { deliveries: 1, stops: false, mailbox: 'fails' },
    caught: /an accepted delivery is not durable/,
  },
  {
    bug: 'the sender leaves deliveries in the queue at a stop',
    find: 'if (batch === undefined) return;',
    replace: 'if (batch === undefined || this.#init.queue.isClosed) return;',
    shape: { deliveries: 1, stops: true, mailbox: 'sound' },
    caught: 'deadlock',
  },
];

const urlOf = (path: string): string => new URL(path, import.meta.url).href;

for (const { bug, file = './sender.ts', find, replace, shape, caught } of BUGS)
  test(`the model catches: ${bug}`, async () => {
    const broken = await mutant<{ Sender: typeof Sender }>(urlOf(file), find, replace, {
      entry: urlOf('./sender.ts'),
    });
    await assertCaught(senderAgainstStop(broken.Sender, shape), {}, caught);
  });
