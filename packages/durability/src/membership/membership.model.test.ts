import { test } from 'node:test';
import { assertCaught, assertHoldsWithin, mutant, type Build } from '@ron/explorer';
import {
  struckTwice,
  struckWhileAdmitting,
  reopenedWhileRemoving,
  reconciledWhileRemoving,
  type Sets,
} from './membership.model.ts';
import { VolumeSet } from '../set/volume-set.ts';

const MODELS: Record<string, (sets: Sets) => Build> = {
  'a stale volume that is reconciled during a removal gets the removal, or stays stale': reconciledWhileRemoving,
  'a volume that is struck off while another one is admitted stays off': struckWhileAdmitting,
  'a caller that strikes off a volume can rely on that being durable': struckTwice,
  'a volume that returns during a removal does not restore the object': reopenedWhileRemoving,
};

interface Mutation {
  readonly bug: string;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  readonly model: (sets: Sets) => Build;
  readonly caught: RegExp;
}

const CAME_BACK = /came back|missed the removal|still visible|restored/;
const MUTATIONS: readonly Mutation[] = [
  {
    bug: 'a volume that misses a decision while it is reconciled is admitted',
    file: './reconcile.ts',
    find: 'member.missed_total !== missed_total || ',
    replace: '',
    model: reconciledWhileRemoving,
    caught: CAME_BACK,
  },
  {
    bug: 'a removal ignores volumes that joined after it began',
    file: '../set/set-writer.ts',
    find: 'await this.#strike(this.#set.members, written, signal);',
    replace: 'await this.#strike(listeners, written, signal);',
    model: reopenedWhileRemoving,
    caught: CAME_BACK,
  },
  {
    bug: 'a volume that was struck off or replaced meanwhile counts as having the removal',
    file: '../set/set-writer.ts',
    find: 'written.filter((each) => this.#counts(each))',
    replace: 'written',
    model: reopenedWhileRemoving,
    caught: CAME_BACK,
  },
  {
    bug: 'a volume is admitted to the roster as it was before the volume wrote its note',
    file: './membership.ts',
    find: 'this.#change({ members: withId(members, id), current: withId(current, id), seen });',
    replace:
      'await member.write([rosterNote(this.#roster, id)], signal);\n    this.#change({ members: withId(members, id), current: withId(current, id), seen });',
    model: struckWhileAdmitting,
    caught: /counts|undid|roster differs/,
  },
  {
    bug: 'a caller that finds a volume struck off already does not wait until that is durable',
    file: './membership.ts',
    find: 'this.#strike(ids);\n    // Even if another call struck them off and is still writing the roster.\n    if (this.#published < this.#roster.number)',
    replace: 'if (this.#strike(ids))',
    model: struckTwice,
    caught: /counts after a crash/,
  },
  {
    bug: 'the last current volume is struck off',
    file: './membership.ts',
    find: 'hasMissed = (member: Member): boolean => (this.#known.get(member) ?? 0) < number;',
    replace:
      'hasMissed = (member: Member): boolean => (this.#known.get(member) ?? 0) !== number;\n      this.#strike(recipients.filter(hasMissed).map((member) => member.id));',
    model: reconciledWhileRemoving,
    caught: CAME_BACK,
  },
];

const urlOf = (path: string): string => import.meta.resolve(path);
const THROUGH = ['../lifecycle/set-lifecycle.ts', './membership.ts', './reconcile.ts', '../set/set-writer.ts'].map(
  urlOf,
);

for (const { bug, file, find, replace, model, caught } of MUTATIONS) {
  test(`the model catches: ${bug}`, async () => {
    const init = { entry: urlOf('../set/volume-set.ts'), through: THROUGH };
    const broken = await mutant<{ VolumeSet: Sets }>(urlOf(file), find, replace, init);
    await assertCaught(model(broken.VolumeSet), { name: bug, lags: 0 }, caught);
  });
}

for (const [name, model] of Object.entries(MODELS)) {
  test(name, async (t) => {
    // No contract here is about time.
    await assertHoldsWithin(t, model(VolumeSet), { name, lags: 0 });
  });
}
