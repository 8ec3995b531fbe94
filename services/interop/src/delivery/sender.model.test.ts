/** The queue and the sender against a stop, under every schedule. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { WorkQueue } from '@ron/kernel';
import { Sender } from './sender.ts';
import { senderAgainstStop, type SenderParts, type SenderShape } from './sender.model.ts';

const PARTS: SenderParts = { Sender, WorkQueue };

const SHAPES: readonly SenderShape[] = [
  { deliveries: 3, capacity: 1, stops: true, mailbox: 'sound' },
  { deliveries: 3, capacity: 1, stops: true, mailbox: 'fails' },
  { deliveries: 3, capacity: 1, stops: false, mailbox: 'fails' },
  { deliveries: 3, capacity: 1, stops: false, mailbox: 'slow' },
];

for (const shape of SHAPES) {
  const { deliveries, capacity, stops, mailbox } = shape;
  const name = `${deliveries} webhooks, places for ${capacity}, mailbox ${mailbox}${stops ? ', and a stop' : ''}`;
  test(`[interop I-3] [interop I-5] [interop I-6] [interop I-8] [interop I-9] ${name}: each is stored or refused`, async (t) => {
    const answers = new Set<string>();
    const model = senderAgainstStop(PARTS, shape, (each) => each.forEach((answer) => answers.add(codeOf(answer))));
    // There are too many schedules without a reduction by state.
    const smaller = senderAgainstStop(PARTS, { ...shape, deliveries: 1 });
    const { schedules } = await assertHolds(model, { name, hash: true, smaller });
    // Otherwise the queue would never have been full.
    assert.deepEqual(answers, new Set(['accepted', 'busy', ...(stops ? ['draining'] : [])]));
    t.diagnostic(`${schedules} schedules`);
  });
}

const codeOf = (answer: string): string => answer.split(':')[1]!;

const QUEUE_FILE = new URL('./work/work-queue.ts', import.meta.resolve('@ron/kernel')).href;

const BUGS: readonly {
  readonly bug: string;
  /** Default: sender.ts. */
  readonly file?: string;
  readonly find: string;
  readonly replace: string;
  readonly shape: SenderShape;
  readonly caught: 'deadlock' | RegExp;
}[] = [
  {
    bug: 'the sender answers before the receipts are durable',
    find: 'await receipts.write();',
    replace: 'void receipts.write();',
    shape: { deliveries: 1, capacity: 1, stops: false, mailbox: 'sound' },
    caught: /an accepted delivery has no receipt/,
  },
  {
    bug: 'a delivery that mailbox did not take is answered without the spool',
    file: './placement.ts',
    find: 'return { stored: [], unsent: entries };',
    replace:
      "return { unsent: [], stored: entries.map((entry) => ({ entry, accepted: { receipt: receipts.add(entry.verified.receipt), duplicate: false, place: 'spool' as const } })) };",
    shape: { deliveries: 1, capacity: 1, stops: false, mailbox: 'fails' },
    caught: /an accepted delivery is not durable/,
  },
  {
    bug: 'the sender leaves deliveries in the queue at a stop',
    find: 'if (batch === undefined) return;',
    replace: 'if (batch === undefined || this.#init.queue.isClosed) return;',
    shape: { deliveries: 1, capacity: 1, stops: true, mailbox: 'sound' },
    caught: 'deadlock',
  },
  {
    bug: 'a delivery that mailbox did not take is not answered by a sender that stops',
    find: 'entry.accept(accepted);',
    replace: 'if (!this.#init.queue.isClosed) entry.accept(accepted);',
    shape: { deliveries: 1, capacity: 1, stops: true, mailbox: 'fails' },
    caught: 'deadlock',
  },
  {
    bug: 'the queue has one place more than its capacity',
    file: QUEUE_FILE,
    find: 'capacity, lanes, budget_ms);',
    replace: 'capacity + 1, lanes, budget_ms);',
    shape: { deliveries: 3, capacity: 1, stops: false, mailbox: 'sound' },
    caught: /more webhooks wait than there are places/,
  },
  {
    bug: 'a full queue refuses after a wait',
    file: QUEUE_FILE,
    find: `return Promise.reject(
        this.#busy(into, now_ms, into.isKeyed && into.size > 0 ? 'has no room for this key' : 'is full'),
      );`,
    replace: "return sched.pause('room').then(() => Promise.reject(this.#busy(into, now_ms, 'is full')));",
    shape: { deliveries: 3, capacity: 1, stops: false, mailbox: 'sound' },
    caught: /a full queue refuses at once/,
  },
  {
    bug: 'the sender does not wait for the spool at a stop',
    find: 'await Promise.all(this.#spools);',
    replace: '',
    shape: { deliveries: 1, capacity: 1, stops: true, mailbox: 'fails' },
    caught: /the sender ends before its writes/,
  },
];

const urlOf = (path: string): string => new URL(path, import.meta.url).href;

for (const { bug, file = './sender.ts', find, replace, shape, caught } of BUGS)
  test(`the model catches: ${bug}`, async () => {
    const init = file === QUEUE_FILE ? {} : { entry: urlOf('./sender.ts') };
    const broken = await mutant<Partial<SenderParts>>(urlOf(file), find, replace, init);
    await assertCaught(senderAgainstStop({ ...PARTS, ...broken }, shape), {}, caught);
  });
