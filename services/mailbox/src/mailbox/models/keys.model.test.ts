/** Messages of one key, under every schedule. */
import { test } from 'node:test';
import { assertCaught, assertHolds } from '@ron/explorer';
import { Mailbox } from '../mailbox.ts';
import { oneOfAKey, type How } from './keys.model.ts';
import { brokenMailbox, type Bug } from './testing/broken-mailbox.ts';

const HOWS: readonly How[] = ['ack', 'nack', 'dead'];

for (const how of HOWS) {
  const name = `a key whose first message gets: ${how}`;
  test(`[mailbox I-6] ${name}; the second one does not pass it`, async (t) => {
    const { schedules } = await assertHolds(oneOfAKey({ Mailbox }, how), { name });
    t.diagnostic(`${schedules} schedules`);
  });
}

const BUGS: readonly (Bug & { readonly how: How })[] = [
  {
    bug: 'a message behind its key is visible',
    file: 'queue/mailbox-state.ts',
    find: '(word & (FLAG.settling | FLAG.behind)) === 0',
    replace: '(word & FLAG.settling) === 0',
    how: 'ack',
    caught: /the second message passed the first/,
  },
  {
    bug: 'an acked message holds its key',
    file: 'queue/mailbox-state.ts',
    find: 'if (head !== NONE) this.#become(head, this.#table.wordOf(head) & ~FLAG.behind);',
    replace: '',
    how: 'ack',
    caught: /the key is not free/,
  },
  {
    bug: 'a dead letter holds its key',
    file: 'queue/mailbox-state.ts',
    find: 'this.#leaveOrder(slot);\n      this.topicOf(slot).dead_order',
    replace: 'this.topicOf(slot).waiting_order.remove(slot);\n      this.topicOf(slot).dead_order',
    how: 'dead',
    caught: /the key is not free/,
  },
];

for (const { how, ...bug } of BUGS) {
  test(`caught: ${bug.bug}`, async () => {
    await assertCaught(oneOfAKey(await brokenMailbox(bug), how), { name: bug.bug }, bug.caught);
  });
}
