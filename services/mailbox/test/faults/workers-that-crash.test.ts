/** A worker that crashes costs one request, which is answered; another worker takes its place, and nothing is lost. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FaultyDisk } from '@ron/log/testing';
import { bytesOf, eventually } from '@ron/testkit';
import { startService } from '../support.ts';

const FLAGS = ['--mailbox.send_workers=1', '--mailbox.settle_workers=1'];

test('workers that crash while they wait for the disk: nothing is lost or stored twice', async () => {
  const disk = new FaultyDisk();
  await using service = await startService({ fs: disk, flags: FLAGS });
  const { supervisor } = service.mailbox.runtime;
  const payload = bytesOf(1000).toString('base64');
  const send = (key: string) =>
    service.call('POST', '/v1/mailbox/send', { messages: [{ topic: 'jobs', idempotency_key: key, payload }] });
  const settle = (op: string, body: object) => service.call('POST', `/v1/mailbox/jobs/${op}`, body);
  assert.equal((await send('a')).status, 200);

  disk.hold('segments', 'sync');
  const refusedSend = send('b');
  await eventually('the send hangs in the disk', () => disk.waiting > 0);
  supervisor.kill('send_pool', 0);
  assert.ok((await refusedSend).status >= 500);
  disk.mend();
  let again = await send('b');
  await eventually('another worker sends', async () => (again = await send('b')).status === 200);
  assert.ok('seq' in again.json.results[0]);

  const { messages } = (await settle('receive', { max: 10, visibility_ms: 60_000 })).json;
  assert.equal(messages.length, 2, 'the repeated send is one message');
  const tokens = messages.map(({ token }: { token: string }) => token);
  disk.hold('segments', 'sync');
  const refusedAck = settle('ack', { tokens });
  await eventually('the ack hangs in the disk', () => disk.waiting > 0);
  supervisor.kill('settle_pool', 0);
  assert.ok((await refusedAck).status >= 500);
  disk.mend();
  await eventually('another worker acks', async () => {
    const { status, json } = await settle('ack', { tokens });
    return status === 200 && json.results.every((result: string) => result === 'ok' || result === 'stale');
  });
  await eventually('both are acked', async () => {
    const { ledger } = (await service.call('GET', '/v1/mailbox/jobs')).json;
    return ledger.acked === 2 && ledger.sent === 2;
  });

  for (const kind of ['send_pool', 'settle_pool'])
    assert.ok((await service.metric(`tasks_restarted_total{kind="${kind}"}`)) >= 1);
  assert.equal(service.mailbox.ingress.admission.inflight, 0);
});
