/** Crashes at every moment of every schedule. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertHolds } from '@ron/explorer';
import { Mailbox } from '../mailbox.ts';
import { checkStart, crashes, twoMessages, type Answers } from './crash.model.ts';
import { brokenMailbox, type Bug } from './testing/broken-mailbox.ts';
import { CrashPoints } from './testing/crash-points.ts';
import type { Parts } from './testing/model-mailbox.ts';

/** Explores all schedules, and starts a mailbox after each crash. */
async function checkCrashes(parts: Parts, name: string): Promise<string> {
  const points = new CrashPoints<Answers>();
  const { schedules } = await assertHolds(crashes(parts, await twoMessages(), points), { name });
  await points.check(parts, checkStart);
  return `${schedules} schedules, ${points.size} crashes`;
}

test('[mailbox I-1] [mailbox I-4] [mailbox I-9] no crash loses a message or an attempt, or brings an acked message back', async (t) => {
  t.diagnostic(await checkCrashes({ Mailbox }, 'crash'));
});

const BUGS: readonly Bug[] = [
  {
    bug: 'an ack is answered before its sync',
    file: 'mailbox/settle/settles.ts',
    find: 'await this.#init.settling.commit(settlements, append);',
    replace: 'void this.#init.settling.commit(settlements, append);',
    caught: /was acked and is back/,
  },
  {
    bug: 'a start forgets settlements',
    file: 'store/ledger/replay.ts',
    find: '    this.#target.onSettled(entries, position);\n',
    replace: '',
    caught: /jobs/,
  },
  {
    bug: 'a start forgets leases',
    file: 'store/ledger/replay.ts',
    find: 'return this.#target.onLeased(decodeLeased(payload));',
    replace: 'return undefined;',
    caught: /lost \d of \d attempts/,
  },
];

for (const bug of BUGS) {
  test(`caught: ${bug.bug}`, async () => {
    await assert.rejects(checkCrashes(await brokenMailbox(bug), bug.bug), bug.caught);
  });
}
