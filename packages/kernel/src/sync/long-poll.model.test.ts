import { test } from 'node:test';
import { assertCaught, assertHolds, mutant, type Build } from '@ron/explorer';
import { closes, polls, type LongPollModule, type Shape } from './long-poll.model.ts';
import * as real from './long-poll.ts';

const HELD: Shape = { capacity: 1, clients: 1, event: 'none' };
const FULL: Shape = { capacity: 1, clients: 2, event: 'none' };

const MODELS: Record<string, (module: LongPollModule) => Build> = {
  'a held client gets the change, or is answered after its time': (module) => polls(module, HELD),
  'with room for one of two clients both are answered': (module) => polls(module, FULL),
  'a close may come at any time': (module) => polls(module, { ...HELD, event: 'close' }),
  'a client may leave at any time': (module) => polls(module, { ...HELD, event: 'client leaves' }),
  'a close releases the client that is held': closes,
};

for (const [name, model] of Object.entries(MODELS)) {
  test(name, async (t) => {
    const { schedules } = await assertHolds(model(real), { name });
    t.diagnostic(`${schedules} schedules`);
  });
}

const MUTANTS: {
  name: string;
  find: string;
  replace: string;
  model: (module: LongPollModule) => Build;
  expected: RegExp;
}[] = [
  {
    name: 'any change is an answer',
    find: 'const value = await receiver.changed(hold.signal);\n        if (isNew(value)) return value;',
    replace: 'return await receiver.changed(hold.signal);',
    model: (module) => polls(module, HELD),
    expected: /a value that the client knows/,
  },
  {
    name: 'a client that was answered still counts as held',
    find: 'this.#held.delete(hold);',
    replace: '',
    model: (module) => polls(module, HELD),
    expected: /no client is held/,
  },
  {
    name: 'the capacity is not checked',
    find: 'this.#held.size >= this.capacity',
    replace: 'false',
    model: (module) => polls(module, FULL),
    expected: /more clients are held than the capacity/,
  },
  {
    name: 'a close does not release held clients',
    find: 'for (const hold of this.#held) hold.cancel();',
    replace: '',
    model: closes,
    expected: /a closed poll held its client/,
  },
];

for (const { name, find, replace, model, expected } of MUTANTS) {
  test(`caught: ${name}`, async () => {
    const module = await mutant<LongPollModule>(import.meta.resolve('./long-poll.ts'), find, replace);
    await assertCaught(model(module), { name }, expected);
  });
}
