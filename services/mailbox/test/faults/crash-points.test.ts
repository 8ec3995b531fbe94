/**
 * A power cut after each disk operation of small histories, with every disk that it could leave behind: at least once, acked
 * never again, dead letters and policies kept, replays atomic, idempotency keys remembered, and the ledger balances.
 *
 * RON_LONG=1 runs more random histories; RON_HISTORY=SEED runs one.
 *
 * [mailbox I-1] [mailbox I-2] [mailbox I-4] [mailbox I-6] [mailbox I-7] [mailbox I-8]
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { OutgoingMessage, ReceivedMessage } from '@ron/proto';
import { bytesOf } from '@ron/testkit';
import { checkEveryCrash, randomFrom, type CrashRun } from '../histories/crash.ts';
import { RANDOM_TOPICS, RandomHistory } from '../histories/random-history.ts';

const topic = 'jobs';

let seed = 0;
const message = (more: Partial<OutgoingMessage> = {}): OutgoingMessage => ({
  topic,
  payload: bytesOf(300, (seed += 1)),
  ...more,
});
const messages = (count: number, more?: Partial<OutgoingMessage>): OutgoingMessage[] =>
  Array.from({ length: count }, () => message(more));
const receive = (run: CrashRun, max: number): Promise<readonly ReceivedMessage[]> => run.client.receive(topic, { max });

test('no crash of sends, batches of several topics and repeated idempotency keys breaks a promise', async () => {
  const images = await checkEveryCrash([topic, 'other'], async (run) => {
    await run.send([message()]);
    await run.send([message(), message({ topic: 'other' }), message({ idempotency_key: 'a' })]);
    const repeated = message({ idempotency_key: 'b' });
    await Promise.all([run.send([repeated]), run.send([repeated]), run.send([message({ delay_ms: 5000 })])]);
  });
  assert.ok(images > 20, `${images} disks`);
});

test('no crash of leases, acks, nacks and extends breaks a promise', async () => {
  await checkEveryCrash([topic], async (run) => {
    await run.send(messages(6));
    const [first, second, third, fourth] = await receive(run, 4);
    await run.client.ack(topic, [first!]);
    await run.client.nack(topic, [second!], { delay_ms: 1000, error: 'later' });
    await run.client.extend(topic, [third!], 60_000);
    await Promise.all([run.client.ack(topic, [third!]), run.client.ack(topic, [fourth!]), run.send([message()])]);
    await receive(run, 1);
  });
});

test('no crash of keyed messages breaks their order', async () => {
  await checkEveryCrash([topic], async (run) => {
    await run.send([...messages(3, { key: 'a' }), ...messages(2, { key: 'b' })]);
    for (let n = 0; n < 2; n += 1) await run.client.ack(topic, await receive(run, 2));
    await run.send(messages(2, { key: 'a' }));
    const [last] = await receive(run, 2);
    await run.client.nack(topic, [last!], { dead: true });
  });
});

test('no crash of dead letters, replays and deletions breaks a promise', async () => {
  await checkEveryCrash([topic], async (run) => {
    await run.send(messages(4));
    const dead = await receive(run, 3);
    await run.client.nack(topic, dead, { dead: true, error: 'broken' });
    await run.replayDead(topic, [dead[0]!.seq]);
    await run.deleteDead(topic, [dead[1]!.seq]);
    await run.client.ack(topic, await receive(run, 1));
  });
});

test('no crash loses a policy', async () => {
  await checkEveryCrash([topic, 'other'], async (run) => {
    await run.setPolicy(topic, { max_messages: 100, max_deliveries: 3 });
    await run.send(messages(2));
    await run.setPolicy('other', { max_bytes: 100_000 });
    await run.setPolicy(topic, { max_messages: 50, max_deliveries: 3 });
  });
});

test('no crash of rotations and compactions loses messages, dead letters, leases or idempotency keys', async () => {
  const images = await checkEveryCrash([topic, 'other'], async (run) => {
    await run.setPolicy('other', { max_messages: 77 });
    await run.send([...messages(2), message({ idempotency_key: 'a' }), message({ idempotency_key: 'b', key: 'k' })]);
    const [stays, dies, acked] = await receive(run, 3);
    await run.client.nack(topic, [dies!], { dead: true, error: 'broken' });
    await run.client.ack(topic, [acked!]);
    for (let n = 0; n < 12; n += 1) {
      await run.send(messages(3, { topic: 'other' }));
      await run.client.ack('other', await run.client.receive('other', { max: 3 }));
    }
    await run.compact();
    await run.client.ack(topic, [stays!]);
    await run.replayDead(topic, [dies!.seq]);
    await run.send(messages(4, { topic: 'other' }));
  });
  assert.ok(images > 100, `${images} disks`);
});

const SEEDS = process.env['RON_LONG'] === '1' ? 400 : 1;
const STEPS = 10;
const ONE = process.env['RON_HISTORY'];
const seeds = ONE === undefined ? Array.from({ length: SEEDS }, (_, index) => index + 1) : [Number(ONE)];

for (const each of seeds) {
  test(`no crash of the random history ${each} breaks a promise`, async () => {
    const random = randomFrom(each);
    await checkEveryCrash(RANDOM_TOPICS, (run) => new RandomHistory(run, random).steps(STEPS));
  });

  test(`no crash of the random history ${each} on a disk with failures breaks a promise`, async () => {
    const random = randomFrom(each);
    const before = (operation: string): void => {
      const isWrite =
        operation === 'sync' || operation === 'write' || operation === 'create' || operation === 'syncDir';
      if (isWrite && random() < 0.06) throw Object.assign(new Error('EIO'), { code: 'EIO' });
    };
    await checkEveryCrash(RANDOM_TOPICS, (run) => new RandomHistory(run, random).steps(STEPS), { before });
  });
}
