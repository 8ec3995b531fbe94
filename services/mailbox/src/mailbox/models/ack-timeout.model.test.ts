/** Acks against the end of their lease, under every schedule. */
import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { Mailbox } from '../mailbox.ts';
import { ackAgainstTimeout } from './ack-timeout.model.ts';
import type { Parts } from './testing/model-mailbox.ts';

test('[mailbox I-4] [mailbox I-5] an ack wins or is stale when its lease ends', async (t) => {
  const { schedules } = await assertHolds(ackAgainstTimeout({ Mailbox }), { name: 'ack against timeout' });
  t.diagnostic(`${schedules} schedules`);
});

const urlOf = (path: string): string => new URL(path, import.meta.url).href;
const entry = urlOf('../mailbox.ts');
const through = [urlOf('../open-mailbox.ts')];

const MUTANTS = [
  {
    bug: 'a token of an earlier delivery is accepted',
    file: '../../queue/mailbox-state.ts',
    find: "delivery === token.delivery && nonce === token.nonce ? slot : 'stale'",
    replace: 'slot',
    caught: /delivered again/,
  },
  {
    bug: 'a lease ends while its ack is syncing',
    file: '../../queue/mailbox-state.ts',
    find: 'isTimed(stateIn(word)) && (word & FLAG.settling) === 0',
    replace: 'isTimed(stateIn(word))',
    caught: /no release of message/,
  },
] as const;

for (const { bug, file, find, replace, caught } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const broken = await mutant<Parts>(urlOf(file), find, replace, { entry, through });
    await assertCaught(ackAgainstTimeout(broken), { name: bug }, caught);
  });
}
