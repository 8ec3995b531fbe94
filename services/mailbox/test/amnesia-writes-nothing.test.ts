/** Amnesia: the same surface without a disk. The file system is watched from outside while everything is used. */
import assert from 'node:assert/strict';
import { watch } from 'node:fs';
import { access, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { bytesOf, filesOpenForWriting, KIB, tempDir, hasWritten } from '@ron/testkit';
import { assertRefusal, type Reply } from '@ron/testkit/service';
import { startProcess } from './process.ts';

test('sends, leases, acks, dead letters, replays and policies stay in memory: nothing is written to any disk', async () => {
  await using temp = await tempDir();
  const at = (name: string): string => join(temp.path, name);
  for (const name of ['cwd', 'tmp', 'home']) await mkdir(at(name));
  const { process: mailbox, headers } = await startProcess(temp.path, {
    flags: ['--amnesia.enabled=true', '--amnesia.bytes_max=32MiB', '--mailbox.segment_bytes=4MiB'],
    cwd: at('cwd'),
    // Not the compile cache of the test run: Node writes to it.
    env: { TMPDIR: at('tmp'), HOME: at('home'), NODE_DISABLE_COMPILE_CACHE: '1' },
  });
  await using _ = mailbox;
  const seen: string[] = [];
  const watchers = [temp.path, at('cwd'), at('tmp'), at('home')].map((dir) =>
    watch(dir, (event, name) => void seen.push(`${event} ${dir}/${name}`)),
  );
  const call = (method: string, path: string, body?: object): Promise<Reply> =>
    mailbox.send(method, `/v1/mailbox/${path}`, {
      headers: { ...headers, 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
  const payload = bytesOf(100 * KIB).toString('base64');
  const receive = async (): Promise<string[]> =>
    (await call('POST', 'jobs/receive', { max: 10 })).json.messages.map(({ token }: { token: string }) => token);
  try {
    assert.equal((await call('PUT', 'jobs', { max_deliveries: 3 })).status, 200);
    // More than the memory holds: compaction must free it.
    for (let round = 0; round < 40; round += 1) {
      const messages = Array.from({ length: 10 }, () => ({ topic: 'jobs', payload }));
      const sent = await call('POST', 'send', { messages });
      assert.equal(sent.status, 200, sent.text);
      assert.ok(
        sent.json.results.every((result: object) => 'seq' in result),
        sent.text,
      );
      const tokens = await receive();
      const results = (await call('POST', 'jobs/ack', { tokens })).json.results;
      assert.deepEqual(new Set(results), new Set(['ok']));
    }
    await call('POST', 'send', { messages: [{ topic: 'jobs', payload }] });
    assert.deepEqual((await call('POST', 'jobs/nack', { tokens: await receive(), dead: true })).json.results, ['ok']);
    assert.equal((await call('POST', 'jobs/dlq/replay', {})).json.replayed, 1);
    const { ledger } = (await call('GET', 'jobs')).json;
    assert.deepEqual([ledger.sent, ledger.acked, ledger.gone, ledger.ready], [402, 400, 1, 1]);
    const messages = Array.from({ length: 12 }, () => ({ topic: 'jobs', payload }));
    let full = await call('POST', 'send', { messages });
    for (let n = 0; full.status === 200 && n < 40; n += 1) full = await call('POST', 'send', { messages });
    assertRefusal(full, 507, 'storage_full');
    assert.deepEqual(await filesOpenForWriting(mailbox.pid), []);
    assert.equal(await hasWritten(mailbox.pid), false);
    assert.equal(await mailbox.stop(), 0);
    assert.deepEqual(seen, []);
    await assert.rejects(access(at('data')), { code: 'ENOENT' });
  } finally {
    for (const watcher of watchers) watcher.close();
  }
});
