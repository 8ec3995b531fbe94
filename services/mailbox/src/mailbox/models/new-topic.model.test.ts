/** Calls that create a topic at the same time, under every schedule. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertHolds, mutant } from '@ron/explorer';
import { Mailbox } from '../mailbox.ts';
import { newTopic, type NewTopicInit } from './new-topic.model.ts';
import type { Parts } from './testing/model-mailbox.ts';

const CASES: readonly NewTopicInit[] = [
  { calls: ['policy', 'refused', 'other'], failures_max: 0 },
  { calls: ['policy', 'refused', 'send'], failures_max: 0 },
  { calls: ['policy', 'leave'], failures_max: 0 },
  { calls: ['refused', 'leave'], failures_max: 0 },
  { calls: ['policy', 'refused'], failures_max: 1 },
];

async function check(parts: Parts, name: string): Promise<string> {
  let total = 0;
  for (const init of CASES) {
    const { schedules } = await assertHolds(newTopic(parts, init), { name: `${name} ${JSON.stringify(init)}` });
    total += schedules;
  }
  return `${total} schedules`;
}

test('[mailbox I-1] [mailbox I-11] a topic that several calls create has one number, and keeps its messages', async (t) => {
  t.diagnostic(await check({ Mailbox }, 'new topic'));
});

const urlOf = (path: string): string => new URL(path, import.meta.url).href;
const entry = urlOf('../mailbox.ts');
const through = [urlOf('../open-mailbox.ts')];

const MUTANTS = [
  {
    bug: 'a refused send forgets the topic whose policy is syncing',
    file: '../topics/topics.ts',
    find: 'topic.holds > 0 || ',
    replace: '',
    caught: /a name has one topic/,
  },
  {
    bug: 'a topic is forgotten by its name, although another one has it now',
    file: '../topics/topics.ts',
    find: "topic.holds > 0 || topic.state.reserved > 0) return;\n    assert(this.#byName.get(topic.name) === topic, 'a name has one topic');",
    replace: 'topic.state.reserved > 0) return;',
    caught: /removed once/,
  },
] as const;

for (const { bug, file, find, replace, caught } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const broken = await mutant<Parts>(urlOf(file), find, replace, { entry, through });
    await assert.rejects(check(broken, bug), caught);
  });
}
