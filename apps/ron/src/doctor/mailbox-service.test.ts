/** The findings about mailbox. */
import assert from 'node:assert/strict';
import { chmod, mkdir } from 'node:fs/promises';
import { test } from 'node:test';
import type { TopicDto } from '@ron/proto';
import { tempDirFor } from '@ron/testkit';
import { homeAt } from '../home.ts';
import { checkMailboxDisk, topicFindings } from './mailbox-service.ts';

const HOUR_MS = 3600 * 1000;

const topicOf = (topic: string, ledger: Partial<TopicDto['ledger']>, more: Partial<TopicDto> = {}): TopicDto => ({
  topic,
  ledger: { sent: 0, acked: 0, ready: 0, delayed: 0, leased: 0, dead: 0, gone: 0, ...ledger },
  bytes: 0,
  dead_bytes: 0,
  oldest_s: null,
  sent_per_s: 0,
  acked_per_s: 0,
  policy: {
    max_messages: 100,
    max_bytes: 1000,
    max_age_ms: 2 * HOUR_MS,
    max_deliveries: 12,
    window_ms: 300_000,
    dead_max_age_ms: HOUR_MS,
    dead_max_messages: 100,
    dead_max_bytes: 1000,
  },
  policy_set: [],
  window_ms: 300_000,
  keys: 0,
  ...more,
});

const shown = (topics: readonly TopicDto[]): string[] =>
  topicFindings(topics).map(({ level, what }) => `${level} ${what}`);

test('topics without a problem are one line', () => {
  assert.deepEqual(shown([]), ['ok 0 topics, 0 messages waiting']);
  assert.deepEqual(shown([topicOf('a', { sent: 3, acked: 1, ready: 1, leased: 1 }, { oldest_s: 3599, bytes: 799 })]), [
    'ok 1 topic, 2 messages waiting',
  ]);
});

test('a topic that is nearly full, full, old or has dead letters is found, with the command that resolves it', () => {
  const found = topicFindings([
    topicOf('many', { sent: 80, ready: 50, delayed: 20, leased: 10 }),
    topicOf('big', { sent: 1, ready: 1 }, { bytes: 1000 }),
    topicOf('old', { sent: 1, leased: 1 }, { oldest_s: 3600 }),
    topicOf('failed', { sent: 1, dead: 1 }),
    topicOf('failing', { sent: 80, dead: 80 }),
  ]);
  assert.deepEqual(
    found.map(({ level, what }) => `${level} ${what}`),
    [
      'ok 5 topics, 82 messages waiting',
      'warn topic many is 80 % full: 80 messages, 0 B',
      'fail topic big is 100 % full: 1 message, 1000 B',
      'warn the oldest message of topic old has waited for 1 h 0 min',
      'warn topic failed has 1 dead letter',
      'warn topic failing has 80 dead letters, and the oldest are dropped soon',
    ],
  );
  assert.match(found[1]!.fix!, /`ron queue policy many --set max_messages=N`/);
  assert.match(found[2]!.fix!, /`ron queue policy big --set max_bytes=SIZE`/);
  assert.match(found[4]!.fix!, /`ron queue dlq failed`.*`ron queue replay failed --all`/);
});

test('a ledger that does not balance is a failure', () => {
  const [, finding] = topicFindings([topicOf('a', { sent: 7, acked: 2, ready: 1, delayed: 1, leased: 1, dead: 1 })]);
  assert.deepEqual([finding!.level, finding!.what], ['fail', 'the ledger of topic a is off by 1']);
});

test('a long list of problems is cut', () => {
  const topics = Array.from({ length: 25 }, (_, at) => topicOf(`t${at}`, { sent: 1, dead: 1 }));
  const found = topicFindings(topics);
  assert.deepEqual([found.length, found.at(-1)!.what], [22, '5 more problems of topics']);
});

test('the directory: nothing before the first start; a mode that lets other users read is found', async (t) => {
  const home = homeAt(tempDirFor(t));
  assert.deepEqual(await checkMailboxDisk(home), []);
  const dir = home.of('mailbox').data;
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const isOpen = async (): Promise<boolean> =>
    (await checkMailboxDisk(home)).some(({ fix }) => fix === `chmod 700 ${dir}`);
  assert.equal(await isOpen(), false);
  await chmod(dir, 0o750);
  assert.equal(await isOpen(), true);
});
