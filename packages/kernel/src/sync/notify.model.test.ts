import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { notifyModel, type NotifyModelInit } from './notify.model.ts';
import { Notify } from './notify.ts';

const TWO: NotifyModelInit = { writers: 2 };
const LEAVES: NotifyModelInit = { writers: 1, leaves: true };

for (const model of [TWO, LEAVES]) {
  test(`no notification is lost: ${JSON.stringify(model)}`, async () => {
    await assertHolds(notifyModel(Notify, model));
  });
}

const MUTANTS = [
  {
    bug: 'a waiter that is aborted after it was woken takes the notification with it',
    find: 'if (isNotified) this.notifyOne();',
    replace: '',
    model: LEAVES,
    caught: 'deadlock' as const,
  },
  {
    bug: 'a notification without a waiter is dropped',
    find: 'else this.#hasPermit = true;',
    replace: '',
    model: TWO,
    caught: 'deadlock' as const,
  },
  {
    bug: 'a wait ignores the permit',
    find: 'if (this.#hasPermit) {',
    replace: 'if (false) {',
    model: TWO,
    caught: 'deadlock' as const,
  },
  {
    bug: 'an aborted caller takes the permit',
    find: 'signal.throwIfAborted();\n',
    replace: 'if (signal.aborted) { this.#hasPermit = false; throw signal.reason; }\n',
    model: LEAVES,
    caught: 'deadlock' as const,
  },
];

for (const { bug, find, replace, model, caught } of MUTANTS) {
  test(`the model catches: ${bug}`, async () => {
    const broken = await mutant<{ Notify: typeof Notify }>(import.meta.resolve('./notify.ts'), find, replace);
    await assertCaught(notifyModel(broken.Notify, model), {}, caught);
  });
}
