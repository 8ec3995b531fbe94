import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { auditOrder, type AuditOrderInit, type LogClass } from './audit-order.model.ts';
import { TransparencyLog } from './log.ts';
import { memorySigner } from '../testing/index.ts';

const LOG = import.meta.resolve('./log.ts');
const { vkey } = memorySigner('log');

const MODELS: readonly AuditOrderInit[] = [
  { appenders: [[1, 2], [1]], checkpointers: [] },
  { appenders: [[1], [2]], checkpointers: [1] },
  { appenders: [[1]], checkpointers: [1, 1] },
  { appenders: [[1, 1]], checkpointers: [1], syncMayFail: true },
  { appenders: [[1]], checkpointers: [1], closes: true },
];

for (const model of MODELS) {
  test(`indexes are contiguous and a checkpoint covers every earlier append: ${JSON.stringify(model)}`, async () => {
    await assertHolds(auditOrder(TransparencyLog, vkey, model));
  });
}

const MUTANTS = [
  {
    bug: 'appends run concurrently',
    find: 'return await this.#appends.run(signal, () => this.#append(entries));',
    replace: 'return await this.#append(entries);',
    caught: /two entries have the index|exactly the acknowledged entries/,
    model: MODELS[0]!,
  },
  {
    bug: 'entries are acknowledged before they are synced',
    find: 'await file.sync();',
    replace: 'void file.sync();',
    caught: /are signed, but only/,
    model: MODELS[1]!,
  },
  {
    bug: 'an existing checkpoint is returned as the new one',
    find: 'if (current?.size === size && ',
    replace: 'if (current !== undefined && ',
    caught: /does not cover all/,
    model: { appenders: [[1, 1]], checkpointers: [2] },
  },
  {
    bug: 'checkpoints run concurrently',
    find: 'return await this.#checkpoints.run(signal, async () => {\n      // In the order',
    replace:
      'return await (async (run: () => Promise<SignedCheckpoint>) => await run())(async () => {\n      // In the order',
    caught: /older one|shrink/,
    model: MODELS[2]!,
  },
  {
    bug: 'the writes of a failed sync are not rolled back',
    find: 'this.#needsRepair = true;',
    replace: '',
    caught: /exactly the acknowledged entries|not the acknowledged one|are signed, but only/,
    model: MODELS[3]!,
  },
  {
    bug: 'a descriptor is used after its sync failed',
    find: 'await this.#files.dropWriters();',
    replace: '',
    caught: /used again/,
    model: MODELS[3]!,
  },
];

for (const { bug, find, replace, caught, model } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const { TransparencyLog: Mutant } = await mutant<{ TransparencyLog: LogClass }>(LOG, find, replace);
    await assertCaught(auditOrder(Mutant, vkey, model), {}, caught);
  });
}
