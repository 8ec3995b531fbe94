import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { groupCommit, type LogClass } from './group-commit.model.ts';
import { SegmentLog } from './segment-log.ts';

const WRITER = import.meta.resolve('./segment-writer.ts');
const entry = import.meta.resolve('./segment-log.ts');

test('an append is acknowledged only after a sync that covers it, and every append is answered', async () => {
  await assertHolds(groupCommit(SegmentLog, { appenders: [1, 1, 1], syncMayFail: false, closes: false }));
  await assertHolds(groupCommit(SegmentLog, { appenders: [1, 1, 1], syncMayFail: true, closes: false }));
});

test('closing answers every append', async () => {
  await assertHolds(groupCommit(SegmentLog, { appenders: [2, 1], syncMayFail: false, closes: true }));
  await assertHolds(groupCommit(SegmentLog, { appenders: [1, 1], syncMayFail: true, closes: true }));
});

const MUTANTS = [
  {
    bug: 'it acknowledges before the sync',
    find: ') await active.file.sync();',
    replace: ') void active.file.sync();',
    caught: /is not durable/,
  },
  {
    bug: 'it syncs before the write has ended',
    find: 'await active.file.write(write.buffers(), active.tail);',
    replace: 'void active.file.write(write.buffers(), active.tail);',
    caught: /is not durable/,
  },
  {
    bug: 'a failed sync counts as a success',
    find: 'if (active !== undefined) await this.#retire(active, error);\n      throw this.#refuseAfter(error);',
    replace: 'this.#refuseAfter(error);',
    caught: /is not durable/,
  },
  {
    bug: 'it reuses a descriptor whose sync failed',
    find: 'if (active !== undefined) await this.#retire(active, error);\n      throw',
    replace: 'throw',
    caught: /used again/,
  },
];

for (const { bug, find, replace, caught } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const { SegmentLog: Mutant } = await mutant<{ SegmentLog: LogClass }>(WRITER, find, replace, { entry });
    await assertCaught(groupCommit(Mutant, { appenders: [1, 1, 1], syncMayFail: true, closes: false }), {}, caught);
  });
}
