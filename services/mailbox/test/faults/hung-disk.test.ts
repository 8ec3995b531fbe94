/** A disk that hangs or fails: requests end at their deadline or are refused, health routes answer, and nothing is lost. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { FaultyDisk } from '@ron/log/testing';
import { bytesOf, eventually } from '@ron/testkit';
import { assertRefusal } from '@ron/testkit/service';
import { Recorder } from '../histories/history.ts';
import { RecordingClient } from '../histories/recording-client.ts';
import { drainAndCheck } from '../histories/run.ts';
import { httpWire } from '../histories/wires.ts';
import { startService, type TestMailbox } from '../support.ts';

const topic = 'jobs';

/** Clients of a service whose calls are recorded. */
async function recorded(service: TestMailbox) {
  const target = { url: service.url, headers: await service.allow() };
  const recorder = new Recorder();
  const client = new RecordingClient(recorder, httpWire(target, 'json'));
  let n = 0;
  const send = async (count = 1): Promise<number> => {
    const messages = Array.from({ length: count }, () => ({ topic, payload: bytesOf(500, (n += 1)) }));
    return await client.send(messages).then(
      () => 200,
      (error: { reply?: { status: number } }) => error.reply?.status ?? 0,
    );
  };
  const check = () => drainAndCheck(recorder, target, { topics: [topic], max_deliveries: 12 });
  return { client, send, check };
}

test('a sync that hangs: sends and acks end at their deadline, health routes and reads answer, and everything works afterwards', async () => {
  const disk = new FaultyDisk();
  await using service = await startService({ fs: disk });
  const { client, send, check } = await recorded(service);
  await send(5);
  const leased = await client.receive(topic, { max: 2 });
  disk.hold('segments', 'sync');
  const hung = [
    send(),
    send(),
    client.ack(topic, leased).then(
      () => 200,
      (error) => error.reply.status,
    ),
  ];
  for (const path of ['/healthz', '/metrics', '/version']) assert.equal((await service.send('GET', path)).status, 200);
  assert.equal((await service.call('GET', `/v1/mailbox/${topic}`)).status, 200);
  for (const status of await Promise.all(hung)) assert.equal(status, 504);
  assert.equal((await service.send('GET', '/healthz')).status, 200);
  disk.mend();
  await eventually('sends succeed', async () => (await send()) === 200);
  await check();
});

suite('a disk that fails', () => {
  for (const [code, steps] of [
    ['EIO', ['sync']],
    ['EIO', ['write', 'create', 'sync']],
    ['EROFS', ['write', 'create', 'sync']],
  ] as const) {
    test(`${code} of ${steps.join(', ')}: writes are refused, nothing is stored twice or lost, and writes succeed again`, async () => {
      const disk = new FaultyDisk();
      await using service = await startService({ fs: disk });
      const { client, send, check } = await recorded(service);
      await send(5);
      const [one, ...others] = await client.receive(topic, { max: 3, visibility_ms: 3_600_000 });
      for (let round = 0; round < 3; round += 1) {
        disk.fail('segments', code, ...steps);
        assert.ok([503, 507].includes(await send()), 'a send');
        await assert.rejects(client.ack(topic, [one!]), 'an ack');
        assertRefusal(await service.call('PUT', '/v1/mailbox/other', { max_messages: 5 }), 503, 'not_ready');
        assert.equal((await service.send('GET', '/healthz')).status, 200);
        disk.mend();
        await eventually('sends succeed', async () => (await send()) === 200);
      }
      assert.deepEqual(await client.ack(topic, [one!, ...others]), ['ok', 'ok', 'ok']);
      assert.equal(await service.metric('integrity_fail_total{reason="ledger"}'), 0);
      await check();
    });
  }
});
