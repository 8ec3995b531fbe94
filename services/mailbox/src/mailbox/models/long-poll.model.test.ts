/** Long polls against sends, clients that leave and drains, under every schedule. */
import { test } from 'node:test';
import { assertCaught, assertHolds, type Build } from '@ron/explorer';
import { Mailbox } from '../mailbox.ts';
import { pollAgainstLeave, pollAgainstSend } from './long-poll.model.ts';
import { brokenMailbox, type Bug } from './testing/broken-mailbox.ts';
import type { Parts } from './testing/model-mailbox.ts';

type Make = (parts: Parts) => Build;
const sendAndLeave: Make = (parts) => pollAgainstSend(parts, 'leave');
const sendAndDrain: Make = (parts) => pollAgainstSend(parts, 'drain');

const MODELS: readonly (readonly [name: string, model: Make])[] = [
  ['a poll against a send and the end of its client', sendAndLeave],
  ['a poll against a send and a drain', sendAndDrain],
  ['a poll against a client that leaves with the message', pollAgainstLeave],
];

for (const [name, model] of MODELS) {
  test(`[mailbox I-12] ${name} loses no message and no wake-up`, async (t) => {
    const { schedules } = await assertHolds(model({ Mailbox }), { name });
    t.diagnostic(`${schedules} schedules`);
  });
}

const BUGS: readonly (Bug & { readonly model: Make })[] = [
  {
    bug: 'a message is given to a client that left',
    file: 'mailbox/receive/receivers.ts',
    find: 'onAbort(signal, (reason) => this.#leave(topic, receiver).fail(reason))',
    replace: 'onAbort(signal, (reason) => parked.fail(reason))',
    model: sendAndLeave,
    caught: /a receiver that left has a message/,
  },
  {
    bug: 'a message is given to a receiver that a drain ended',
    file: 'mailbox/receive/receivers.ts',
    find: 'onAbort(draining, empty)',
    replace: 'onAbort(draining, () => parked.wake(undefined))',
    model: sendAndDrain,
    caught: /a receiver that left has a message/,
  },
  {
    bug: 'a message becomes visible between the check and the wait',
    file: 'mailbox/receive/receivers.ts',
    find: 'return this.#park(topic, wanted, { wait_ms, signal, draining });',
    replace: "return sched.pause('gap').then(() => this.#park(topic, wanted, { wait_ms, signal, draining }));",
    model: sendAndLeave,
    caught: /a receiver waits beside a visible message/,
  },
  {
    bug: 'a send wakes no receiver',
    file: 'mailbox/state-target.ts',
    find: 'this.#windowOf(topic), now_ms);\n    this.#changed.add(topic.name);',
    replace: 'this.#windowOf(topic), now_ms);',
    model: sendAndLeave,
    caught: /a receiver waits beside a visible message/,
  },
  {
    bug: 'a returned message wakes no receiver',
    file: 'mailbox/receive/deliveries.ts',
    find: 'this.#init.onVisible(topic.name);',
    replace: '',
    model: pollAgainstLeave,
    caught: /a receiver waits beside a visible message/,
  },
  {
    bug: 'a client that leaves while its lease is written keeps the message',
    file: 'mailbox/receive/deliveries.ts',
    find: 'this.#release(taken);',
    replace: '',
    model: pollAgainstLeave,
    caught: /a receiver that left has a message/,
  },
];

for (const { model, ...bug } of BUGS) {
  test(`caught: ${bug.bug}`, async () => {
    await assertCaught(model(await brokenMailbox(bug)), { name: bug.bug }, bug.caught);
  });
}
