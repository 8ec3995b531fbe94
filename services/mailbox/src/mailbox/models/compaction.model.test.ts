/** The compaction of a segment beside acks and a receive of its messages, under every schedule, with a crash at every moment. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertHolds, mutant } from '@ron/explorer';
import { Compactor } from '../../store/compaction/compactor.ts';
import { Mailbox } from '../mailbox.ts';
import {
  checkStart,
  compaction,
  fullSegment,
  type Answers,
  type CompactionInit,
  type CompactionParts,
} from './compaction.model.ts';
import { brokenMailbox, type Bug } from './testing/broken-mailbox.ts';
import { CrashPoints } from './testing/crash-points.ts';

const PARTS: CompactionParts = { Mailbox, Compactor };

type Calls = Omit<CompactionInit, 'segment'>;
const ACK: Calls = { calls: ['ack'], slow: ['read', 'sync'] };
const RECEIVE_AND_ACK: Calls = { calls: ['receive', 'ack', 'ack'], slow: ['sync'] };

/** Explores all schedules, and starts a mailbox after each crash. */
async function checkCompaction(parts: CompactionParts, calls: Calls, name: string): Promise<string> {
  const points = new CrashPoints<Answers>();
  const segment = await fullSegment();
  const { schedules } = await assertHolds(compaction(parts, { segment, ...calls }, points), { name });
  await points.check(parts, checkStart);
  return `${schedules} schedules, ${points.size} crashes`;
}

test('[mailbox I-4] [mailbox I-8] a message that is acked while its segment is compacted does not come back', async (t) => {
  t.diagnostic(await checkCompaction(PARTS, ACK, 'compaction against ack'));
});

test('[mailbox I-4] [mailbox I-9] leases that are taken and acked while their segment is compacted move with it', async (t) => {
  t.diagnostic(await checkCompaction(PARTS, RECEIVE_AND_ACK, 'compaction against receive and ack'));
});

const urlOf = (path: string): string => new URL(`../../${path}`, import.meta.url).href;
const brokenCompactor = ({ file, find, replace }: Bug): Promise<Pick<CompactionParts, 'Compactor'>> =>
  mutant(urlOf(file), find, replace, { entry: urlOf('store/compaction/compactor.ts') });

interface PlantedBug extends Bug {
  readonly plant: (bug: Bug) => Promise<Partial<CompactionParts>>;
  readonly calls: Calls;
}

const BUGS: readonly PlantedBug[] = [
  {
    bug: 'the check that a message is unsettled and its append are not one step',
    file: 'store/compaction/segment-compaction.ts',
    find: 'appended: this.#log.append(records, this.#signal), rest',
    replace: 'appended: this.#log.rotate(this.#signal).then(() => this.#log.append(records, this.#signal)), rest',
    plant: brokenCompactor,
    calls: ACK,
    caught: /ledger broken/,
  },
  {
    bug: 'a message is moved although its ack is syncing',
    file: 'mailbox/live-view.ts',
    find: 'if (state.isSettling(slot)) return',
    replace: 'if (seq < 0) return',
    plant: brokenMailbox,
    calls: ACK,
    caught: /ledger broken/,
  },
  {
    bug: 'a segment is removed before the moves are durable',
    file: 'store/compaction/segment-compaction.ts',
    find: '      await appended;\n',
    replace: '      void appended;\n',
    plant: brokenCompactor,
    calls: ACK,
    caught: /holds messages that cannot be read/,
  },
  {
    bug: 'a message moves without its attempts',
    file: 'mailbox/live-view.ts',
    find: '      attempts,\n      nonce,',
    replace: '      attempts: 0,\n      nonce,',
    plant: brokenMailbox,
    calls: RECEIVE_AND_ACK,
    caught: /an attempt of message \d+ is lost/,
  },
];

for (const bug of BUGS) {
  test(`caught: ${bug.bug}`, async () => {
    const broken = await bug.plant(bug);
    await assert.rejects(checkCompaction({ ...PARTS, ...broken }, bug.calls, bug.bug), bug.caught);
  });
}
