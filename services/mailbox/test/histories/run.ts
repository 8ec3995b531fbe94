/** Runs a history to its end: drains the topics, reads their final state, and checks everything. */
import assert from 'node:assert/strict';
import type { DeadPageDto, TopicDto } from '@ron/proto';
import { send, type Reply } from '@ron/testkit/service';
import { violationsOf } from './checker.ts';
import type { FinalTopic, Recorder } from './history.ts';
import { RecordingClient } from './recording-client.ts';
import { httpWire, type Target } from './wires.ts';

const VIOLATIONS_SHOWN = 10;

const get = (target: Target, path: string): Promise<Reply> =>
  send(target.url, 'GET', `/v1/mailbox/${path}`, { headers: target.headers });

export async function topicOf(target: Target, topic: string): Promise<TopicDto> {
  const reply = await get(target, topic);
  assert.equal(reply.status, 200, reply.text);
  return reply.json;
}

/** Receives and acks until no message of the topic waits. */
export async function drain(recorder: Recorder, target: Target, topic: string): Promise<void> {
  const client = new RecordingClient(recorder, httpWire(target, 'framed'));
  for (;;) {
    const messages = await client.receive(topic, { max: 128, visibility_ms: 30_000, wait_ms: 500, bytes_max: 8 << 20 });
    if (messages.length > 0) await client.ack(topic, messages);
    const { ready, delayed, leased } = (await topicOf(target, topic)).ledger;
    if (ready + delayed + leased === 0) return;
  }
}

async function finalTopic(target: Target, topic: string): Promise<FinalTopic> {
  const dead: FinalTopic['dead'][number][] = [];
  for (let after: number | undefined = 0; after !== undefined;) {
    const reply: Reply = await get(target, `${topic}/dlq?after=${after}&limit=128`);
    assert.equal(reply.status, 200, reply.text);
    const page: DeadPageDto = reply.json;
    dead.push(...page.dead);
    after = page.next;
  }
  return { topic, ledger: (await topicOf(target, topic)).ledger, dead };
}

/** Drains all topics and fails with the violations of the history. */
export async function drainAndCheck(
  recorder: Recorder,
  target: Target,
  init: { readonly topics: readonly string[]; readonly max_deliveries: number },
): Promise<void> {
  await Promise.all(init.topics.map((topic) => drain(recorder, target, topic)));
  const topics = await Promise.all(init.topics.map((topic) => finalTopic(target, topic)));
  const { calls } = recorder;
  const violations = violationsOf({ calls, topics, max_deliveries: init.max_deliveries, leases_survive: true });
  const shown = violations.slice(0, VIOLATIONS_SHOWN).map(({ rule, detail }) => `${rule}: ${detail}`);
  assert.equal(violations.length, 0, `${violations.length} violations\n${shown.join('\n')}`);
}
