import { test } from 'node:test';
import { assertCaught, assertHoldsWithin, mutant, type Build } from '@ron/explorer';
import {
  struckTwice,
  struckWhileAdmitting,
  takenBackWhileRemoving,
  toldWhileRemoving,
  type Sets,
} from './membership.model.ts';
import { VolumeSet } from '../set/volume-set.ts';

const MODELS: Record<string, (sets: Sets) => Build> = {
  'a stale volume that is told what it missed while something is removed hears of that, or does not count':
    toldWhileRemoving,
  'a volume that is struck off while another one is admitted stays off': struckWhileAdmitting,
  'who finds that a volume missed something can rely on that being known': struckTwice,
  'a volume that comes back while something is removed brings nothing back': takenBackWhileRemoving,
};

interface Mutation {
  readonly bug: string;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  readonly model: (sets: Sets) => Build;
  readonly caught: RegExp;
}

const CAME_BACK = /came back|has not heard|it is there|brought back/;
const MUTATIONS: readonly Mutation[] = [
  {
    bug: 'whoever misses something while it is told what it missed is admitted',
    file: './reconcile.ts',
    find: 'member.missed_total !== missed_total || ',
    replace: '',
    model: toldWhileRemoving,
    caught: CAME_BACK,
  },
  {
    bug: 'a removal is told to those who were there when it began, and nobody looks who came',
    file: '../set/set-writer.ts',
    find: 'await this.#strike(this.#set.members, written, signal);',
    replace: 'await this.#strike(listeners.filter((each) => each.isCurrent), written, signal);',
    model: takenBackWhileRemoving,
    caught: CAME_BACK,
  },
  {
    bug: 'who was struck off or replaced meanwhile counts as having heard',
    file: '../set/set-writer.ts',
    find: 'written.filter((each) => this.#counts(each))',
    replace: 'written',
    model: takenBackWhileRemoving,
    caught: CAME_BACK,
  },
  {
    bug: 'a volume is admitted to the list as it was before it took a note',
    file: './membership.ts',
    find: 'this.#change({ members: withId(members, id), current: withId(current, id), seen });',
    replace:
      'await member.write([rosterNote(this.#roster, id)], signal);\n    this.#change({ members: withId(members, id), current: withId(current, id), seen });',
    model: struckWhileAdmitting,
    caught: /counts|undid/,
  },
  {
    bug: 'who finds that somebody was struck off already does not wait until that is durable',
    file: './membership.ts',
    find: 'this.#strike(ids);\n    // Even if another call struck them off and is still writing the roster.\n    if (this.#told < this.#roster.number)',
    replace: 'if (this.#strike(ids))',
    model: struckTwice,
    caught: /counts after a crash/,
  },
  {
    bug: 'the last one that counts is struck off',
    file: './membership.ts',
    find: 'isDeaf = (member: Member): boolean => (this.#known.get(member) ?? 0) < number;',
    replace:
      'isDeaf = (member: Member): boolean => (this.#known.get(member) ?? 0) !== number;\n      this.#strike(told.filter(isDeaf).map((member) => member.id));',
    model: toldWhileRemoving,
    caught: CAME_BACK,
  },
];

const urlOf = (path: string): string => import.meta.resolve(path);
const THROUGH = ['./set-life.ts', './membership.ts', './reconcile.ts', '../set/set-writer.ts'].map(urlOf);

for (const { bug, file, find, replace, model, caught } of MUTATIONS) {
  test(`the model catches: ${bug}`, async () => {
    const init = { entry: urlOf('../set/volume-set.ts'), through: THROUGH };
    const broken = await mutant<{ VolumeSet: Sets }>(urlOf(file), find, replace, init);
    await assertCaught(model(broken.VolumeSet), { name: bug, lags: 0 }, caught);
  });
}

for (const [name, model] of Object.entries(MODELS)) {
  test(name, async (t) => {
    // No promise here is about time.
    await assertHoldsWithin(t, model(VolumeSet), { name, lags: 0 });
  });
}
