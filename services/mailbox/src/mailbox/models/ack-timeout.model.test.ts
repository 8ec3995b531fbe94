/** Acks against the end of their lease, under every schedule. */
import { test } from 'node:test';
import { assertCaught, assertHolds } from '@ron/explorer';
import { Mailbox } from '../mailbox.ts';
import { ackAgainstTimeout } from './ack-timeout.model.ts';
import { brokenMailbox, type Bug } from './testing/broken-mailbox.ts';

test('[mailbox I-4] [mailbox I-5] an ack wins or is stale when its lease ends', async (t) => {
  const { schedules } = await assertHolds(ackAgainstTimeout({ Mailbox }), { name: 'ack against timeout' });
  t.diagnostic(`${schedules} schedules`);
});

const BUGS: readonly Bug[] = [
  {
    bug: 'a token of an earlier delivery is accepted',
    file: 'queue/mailbox-state.ts',
    find: "delivery === token.delivery && nonce === token.nonce ? slot : 'stale'",
    replace: 'slot',
    caught: /an acked message was delivered again/,
  },
  {
    bug: 'a lease ends while its ack is syncing',
    file: 'queue/mailbox-state.ts',
    find: 'isTimed(stateIn(word)) && (word & FLAG.settling) === 0',
    replace: 'isTimed(stateIn(word))',
    caught: /no release of message/,
  },
];

for (const bug of BUGS) {
  test(`caught: ${bug.bug}`, async () => {
    await assertCaught(ackAgainstTimeout(await brokenMailbox(bug)), { name: bug.bug }, bug.caught);
  });
}
