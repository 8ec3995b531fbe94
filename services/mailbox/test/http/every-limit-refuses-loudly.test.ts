/** [mailbox I-11] Every limit of mailbox refuses with its code and is counted, while other requests are served. */
import assert from 'node:assert/strict';
import { Agent } from 'node:http';
import { suite, test } from 'node:test';
import { FaultyDisk } from '@ron/log/testing';
import { eventually, tempDir } from '@ron/testkit';
import { assertRefusal, type Reply } from '@ron/testkit/service';
import { AMNESIA, startService, type TestMailbox } from '../support.ts';

const HEALTH = ['/healthz', '/metrics', '/version'];
const base = '/v1/mailbox';

async function assertHealthy(mailbox: TestMailbox): Promise<void> {
  for (const path of HEALTH) assert.equal((await mailbox.send('GET', path)).status, 200, path);
}

suite('limits', () => {
  test('the 257th topic is refused, in both forms and by a policy; the others go on', async () => {
    await using mailbox = await startService({ flags: AMNESIA });
    const messages = Array.from({ length: 257 }, (_, index) => ({ topic: `t${index}`, payload: '' }));
    for (const from of [0, 128])
      await mailbox.call('POST', `${base}/send`, { messages: messages.slice(from, from + 128) });
    const last = messages.slice(254);
    const { results } = (await mailbox.call('POST', `${base}/send`, { messages: last })).json;
    assert.deepEqual(
      results.map(({ error }: { error?: string }) => error),
      [undefined, undefined, 'topic'],
    );
    const { topics } = (await mailbox.call('GET', base)).json;
    assert.equal(topics.length, 256);
    const headers = await mailbox.allow();
    assertRefusal(await mailbox.send('POST', `${base}/one_more`, { headers, body: 'x' }), 404, 'not_found');
    const policy = await mailbox.call('PUT', `${base}/one_more`, {});
    assert.ok(policy.status >= 400 && policy.status !== 500, policy.text);
    assert.equal((await mailbox.send('POST', `${base}/t7`, { headers, body: 'x' })).status, 201);
    assert.equal((await mailbox.call('GET', base)).json.topics.length, 256);
    assert.ok((await mailbox.metric('mailbox_sent_total{topic="other",result="topic"}')) >= 2);
  });

  test('without auto_topics only a policy creates a topic', async () => {
    await using mailbox = await startService({ flags: [...AMNESIA, '--mailbox.auto_topics=false'] });
    const headers = await mailbox.allow();
    assertRefusal(await mailbox.send('POST', `${base}/jobs`, { headers, body: 'x' }), 404, 'not_found');
    assert.equal((await mailbox.call('PUT', `${base}/jobs`, {})).status, 200);
    assert.equal((await mailbox.send('POST', `${base}/jobs`, { headers, body: 'x' })).status, 201);
  });

  test('one long poll more than holds_max gets 429 with Retry-After, and a place again once one has left', async () => {
    await using mailbox = await startService({ flags: [...AMNESIA, '--mailbox.holds_max=3'] });
    const leaving = new AbortController();
    const headers = { ...(await mailbox.allow()), 'content-type': 'application/json' };
    const poll = (signal?: AbortSignal): Promise<Reply> =>
      mailbox.send('POST', `${base}/quiet/receive`, {
        headers,
        body: '{"wait_ms":20000}',
        ...(signal !== undefined && { signal }),
      });
    const waits = [poll(leaving.signal), poll(), poll()];
    const depth = (): Promise<number> => mailbox.metric('queue_depth{queue="holds"}');
    await eventually('three wait', async () => (await depth()) === 3);
    assertRefusal(await poll(), 429, 'busy');
    assert.equal(await mailbox.metric('busy_rejections_total{queue="holds",lane="holds"}'), 1);
    leaving.abort();
    await assert.rejects(waits[0]!);
    await eventually('one has left', async () => (await depth()) === 2);
    const late = poll();
    await eventually('three wait again', async () => (await depth()) === 3);
    await assertHealthy(mailbox);
    const messages = Array.from({ length: 3 }, () => ({ topic: 'quiet', payload: '' }));
    await mailbox.call('POST', `${base}/send`, { messages });
    for (const reply of await Promise.all([waits[1]!, waits[2]!, late])) {
      assert.equal(reply.status, 200);
      assert.equal(reply.json.messages.length, 1);
    }
  });

  test('a full queue of sends gets 429 with Retry-After; settles, reads and probes are served meanwhile', async () => {
    await using temp = await tempDir();
    const disk = new FaultyDisk();
    const flags = ['--mailbox.send_workers=1', '--server.connection_limit_per_ip=1000', '--server.max_inflight=2048'];
    await using mailbox = await startService({ fs: disk, dir: temp.path, flags });
    const headers = await mailbox.allow();
    const agent = new Agent({ keepAlive: true, maxSockets: 400 });
    const send = (): Promise<Reply> => mailbox.send('POST', `${base}/jobs`, { headers, body: 'x', agent });
    assert.equal((await send()).status, 201);
    disk.hold(temp.path);
    // One is with the worker, 256 wait.
    const replies = Array.from({ length: 300 }, send);
    const refused = (): Promise<number> => mailbox.metric('busy_rejections_total{queue="work",lane="send"}');
    await eventually('the rest is refused', async () => (await refused()) >= 43);
    assert.deepEqual((await mailbox.call('POST', `${base}/jobs/ack`, { tokens: ['x'] })).json, {
      results: ['unknown'],
    });
    assert.equal((await mailbox.call('GET', `${base}/jobs`)).json.ledger.sent, 1, 'nothing is visible before its sync');
    await assertHealthy(mailbox);
    disk.mend();
    const all = await Promise.all(replies);
    const byStatus = Object.groupBy(all, ({ status }) => status);
    for (const reply of byStatus[429] ?? []) assertRefusal(reply, 429, 'busy');
    const stored = byStatus[201]?.length ?? 0;
    const late = byStatus[504]?.length ?? 0;
    assert.equal(stored + late + (byStatus[429]?.length ?? 0), 300, Object.keys(byStatus).join(' '));
    assert.equal((await send()).status, 201);
    const { ledger } = (await mailbox.call('GET', `${base}/jobs`)).json;
    assert.ok(
      ledger.sent >= stored + 2 && ledger.sent <= stored + 2 + late,
      `${ledger.sent} of ${stored}, ${late} late`,
    );
    agent.destroy();
  });
});
