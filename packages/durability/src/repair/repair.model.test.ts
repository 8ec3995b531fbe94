import { test } from 'node:test';
import { assertCaught, assertHolds, assertHoldsWithin, mutant, type Build } from '@ron/explorer';
import { Planner } from './planner.ts';
import {
  copiesAreMade,
  plansNeverDuplicate,
  repairAgainstCompaction,
  repairAgainstDelete,
  shardAgainstCompaction,
  type Parts,
} from './repair.model.ts';
import { repair } from './repair.ts';
import { RepairQueue } from './repair-queue.ts';
import { RepairWorker } from './repair-worker.ts';
import { VolumeSet } from '../set/volume-set.ts';

const PARTS: Parts = { VolumeSet, Planner, RepairQueue, RepairWorker, repair };

const MODELS: Record<string, (parts: Parts) => Build> = {
  'an object that is removed while it is repaired stays removed': repairAgainstDelete,
  'a content that moves during a compaction is always found': repairAgainstCompaction,
  'a shard that moves during a compaction is where its stripe says': shardAgainstCompaction,
  'copies are made in the end, and every byte is paced': copiesAreMade,
  'two plans at once never duplicate work': plansNeverDuplicate,
};

/** Only pacing is about time. */
const lagsOf = (model: (parts: Parts) => Build): number => (model === copiesAreMade ? 1 : 0);

interface Mutation {
  readonly bug: string;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  /** The module that is imported again, so that it uses the changed file, and the part of it that is used. */
  readonly entry?: string;
  readonly part: keyof Parts;
  readonly model: (parts: Parts) => Build;
  readonly caught: RegExp;
}

const MUTATIONS: readonly Mutation[] = [
  {
    bug: 'a copy does not check whether the object was removed meanwhile',
    file: '../set/volume-set.ts',
    find: 'watch.isRemoved || !this.knowsObject',
    replace: '!this.knowsObject',
    part: 'VolumeSet',
    model: repairAgainstDelete,
    caught: /came back|a volume has it|it is there/,
  },
  {
    bug: 'a removal that is being written does not count',
    file: '../set/removals.ts',
    find: "age === 'new' ? entry.removals : entry.removals - entry.removing",
    replace: 'entry.removals',
    entry: '../set/volume-set.ts',
    part: 'VolumeSet',
    model: repairAgainstDelete,
    caught: /came back|a volume has it|it is there/,
  },
  {
    bug: 'a reader tries only the volumes that held the content when it began',
    file: '../set/set-reader.ts',
    find: 'member !== undefined; member = this.#untried(kind, id, tried)) {',
    replace: 'member !== undefined; member = undefined) {',
    entry: '../set/volume-set.ts',
    part: 'VolumeSet',
    model: repairAgainstCompaction,
    caught: /was not found/,
  },
  {
    bug: 'a copy is removed though no other volume has it yet',
    file: './reclaim-set.ts',
    find: "return wanted.every((each) => each.holdsDurably('content', id));",
    replace: 'return true;',
    entry: '../set/volume-set.ts',
    part: 'VolumeSet',
    model: repairAgainstCompaction,
    caught: /was not found|gone/,
  },
  {
    bug: 'a content that is being copied may be removed',
    file: './reclaim-set.ts',
    find: '!set.holds.isFree(id) || survey.isHome(member, id)',
    replace: 'survey.isHome(member, id)',
    entry: '../set/volume-set.ts',
    part: 'VolumeSet',
    model: shardAgainstCompaction,
    caught: /where its stripe says|could be read|could not be read back/,
  },
  {
    bug: 'a write is not paced',
    file: './repair.ts',
    find: 'await pace(record.payload.length, signal);\n    await withVolumeTimeout(target.write([{ type',
    replace: 'await withVolumeTimeout(target.write([{ type',
    entry: './repair-worker.ts',
    part: 'RepairWorker',
    model: copiesAreMade,
    caught: /were paid for/,
  },
  {
    bug: 'a failed job is never released',
    file: './repair-worker.ts',
    find: '} finally {\n      queue.done(job);',
    replace: 'return;\n    } finally {\n      if (this.failed_total === 0) queue.done(job);',
    part: 'RepairWorker',
    model: copiesAreMade,
    caught: /not made|deadlock/,
  },
  {
    bug: 'a filed job counts as repaired',
    file: './plan-walk.ts',
    find: "if (mode === 'all') this.#deficit[job.class] += 1;",
    replace: '',
    entry: './planner.ts',
    part: 'Planner',
    model: copiesAreMade,
    caught: /a copy is missing/,
  },
  {
    bug: 'a job in progress is planned again',
    file: './repair-queue.ts',
    find: 'this.#closed || this.#inflight.has(key)',
    replace: 'this.#closed',
    part: 'RepairQueue',
    model: plansNeverDuplicate,
    caught: /more than once|done once/,
  },
];

const urlOf = (path: string): string => import.meta.resolve(path);

for (const { bug, file, find, replace, entry, part, model, caught } of MUTATIONS) {
  test(`the model catches: ${bug}`, async () => {
    const through = [
      './repair.ts',
      './planner.ts',
      '../set/volume-set.ts',
      '../set/set-writer.ts',
      './reclaim-set.ts',
    ].map(urlOf);
    const init = entry === undefined ? {} : { entry: urlOf(entry), through };
    const broken = await mutant<Record<string, never>>(urlOf(file), find, replace, init);
    await assertCaught(model({ ...PARTS, [part]: broken[part] }), { name: bug, lags: lagsOf(model) }, caught);
  });
}

for (const [name, model] of Object.entries(MODELS)) {
  test(name, async (t) => {
    if (model === copiesAreMade) await assertHolds(model(PARTS), { name });
    else await assertHoldsWithin(t, model(PARTS), { name, lags: 0 });
  });
}
