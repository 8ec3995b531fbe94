/** Concurrent calls for one lease, under every schedule. */
import { test } from 'node:test';
import { assertCaught, assertHolds } from '@ron/explorer';
import { Mailbox } from '../mailbox.ts';
import { settleOnce, type Call } from './settle.model.ts';
import { brokenMailbox, type Bug } from './testing/broken-mailbox.ts';

const CALLS: readonly (readonly Call[])[] = [
  ['ack', 'nack', 'extend'],
  ['ack', 'dead', 'extend'],
  ['ack', 'nack', 'receive'],
  ['extend', 'nack', 'receive'],
];

for (const calls of CALLS) {
  const name = `${calls.join(', ')} of one lease`;
  test(`[mailbox I-3] [mailbox I-5] ${name} have the outcome of some order`, async (t) => {
    const { schedules } = await assertHolds(settleOnce({ Mailbox }, calls), { name });
    t.diagnostic(`${schedules} schedules`);
  });
}

const BUGS: readonly (Bug & { readonly calls: readonly Call[] })[] = [
  {
    bug: 'a message is settled twice',
    file: 'mailbox/settle/settles.ts',
    find: 'this.#init.state.isSettling(slot) ? this.#init.settling.of(token!.seq) : undefined',
    replace: 'undefined',
    calls: ['ack', 'dead', 'extend'],
    caught: /no (beginSettle|extend) of message/,
  },
  {
    bug: 'a call that waited for another settlement is ok',
    file: 'mailbox/settle/settles.ts',
    find: 'settlement.isApplied && settlement.by === call.op',
    replace: 'settlement.isApplied',
    calls: ['ack', 'dead', 'extend'],
    caught: /no order of the calls has this outcome/,
  },
  {
    bug: 'a token is valid after a redelivery',
    file: 'queue/mailbox-state.ts',
    find: "delivery === token.delivery && nonce === token.nonce ? slot : 'stale'",
    replace: 'slot',
    calls: ['ack', 'nack', 'receive'],
    caught: /no order of the calls has this outcome/,
  },
];

for (const { calls, ...bug } of BUGS) {
  test(`caught: ${bug.bug}`, async () => {
    await assertCaught(settleOnce(await brokenMailbox(bug), calls), { name: bug.bug }, bug.caught);
  });
}
