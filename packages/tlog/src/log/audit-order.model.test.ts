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
  test(`indexes are contiguous and a checkpoint covers what came before it: ${JSON.stringify(model)}`, async () => {
    await assertHolds(auditOrder(TransparencyLog, vkey, model));
  });
}

const MUTANTS = [
  {
    bug: 'appends do not take turns',
    find: 'return await this.#appends.run(signal, () => this.#append(entries));',
    replace: 'return await this.#append(entries);',
    caught: /two entries have the index|as many entries as/,
    model: MODELS[0]!,
  },
  {
    bug: 'entries are acknowledged before they are synced',
    find: 'await file.sync();',
    replace: 'void file.sync();',
    caught: /are signed and/,
    model: MODELS[1]!,
  },
  {
    bug: 'the checkpoint that is there is taken for the new one',
    find: 'if (current?.size === size && ',
    replace: 'if (current !== undefined && ',
    caught: /leaves out/,
    model: { appenders: [[1, 1]], checkpointers: [2] },
  },
  {
    bug: 'checkpoints do not take turns',
    find: 'return await this.#checkpoints.run(signal, async () => {\n      // Its turn',
    replace:
      'return await (async (run: () => Promise<SignedCheckpoint>) => await run())(async () => {\n      // Its turn',
    caught: /older one|go back/,
    model: MODELS[2]!,
  },
  {
    bug: 'what a failed sync left is not taken back',
    find: 'this.#isBroken = true;',
    replace: '',
    caught: /as many entries as|not the one that was acknowledged|are signed and/,
    model: MODELS[3]!,
  },
  {
    bug: 'it goes on with a descriptor whose sync failed',
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
