/** Two sends with one idempotency key, under every schedule, with a crash at every moment. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertHolds } from '@ron/explorer';
import { NEVER } from '@ron/kernel';
import { Mailbox } from '../mailbox.ts';
import { checkStart, HOOK, repeatedSend, type Answers } from './repeated-send.model.ts';
import { brokenMailbox, type Bug } from './testing/broken-mailbox.ts';
import { CrashPoints, filesOf } from './testing/crash-points.ts';
import type { Parts } from './testing/model-mailbox.ts';

/** Explores all schedules, and starts a mailbox after each crash. */
async function checkSends(parts: Parts, name: string, failures_max = 0): Promise<string> {
  const points = new CrashPoints<Answers>();
  // The topic exists: its record is not a part of the model.
  const files = await filesOf(async (mailbox) => void (await mailbox.setPolicy(HOOK, {}, NEVER)));
  const { schedules } = await assertHolds(repeatedSend(parts, { files, failures_max }, points), { name });
  await points.check(parts, checkStart);
  return `${schedules} schedules, ${points.size} crashes`;
}

test('[mailbox I-1] [mailbox I-2] two sends with one key store one message, and each is answered after its sync', async (t) => {
  t.diagnostic(await checkSends({ Mailbox }, 'repeated send'));
});

test('[mailbox I-2] a failed sync leaves at most one message of a key', async (t) => {
  t.diagnostic(await checkSends({ Mailbox }, 'repeated send, a sync fails', 1));
});

const BUGS: readonly Bug[] = [
  {
    bug: 'the second send is answered before the sync of the first',
    file: 'mailbox/send/sends.ts',
    find: 'if (first !== undefined) return { send: first, isFirst: false };',
    replace: 'if (first !== undefined) return void (results[index] = { ...stored(first), duplicate: true });',
    caught: /a duplicate send was answered and is lost/,
  },
  {
    bug: 'a key in flight is not known',
    file: 'mailbox/send/sends.ts',
    find: 'if (first !== undefined) return { send: first, isFirst: false };',
    replace: '',
    caught: /one send stores the message/,
  },
];

for (const bug of BUGS) {
  test(`caught: ${bug.bug}`, async () => {
    await assert.rejects(checkSends(await brokenMailbox(bug), bug.bug), bug.caught);
  });
}
