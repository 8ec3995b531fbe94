/** Amnesia: webhooks are accepted and their receipts signed without a disk; without mailbox they get 503. */
import assert from 'node:assert/strict';
import { watch } from 'node:fs';
import { access, mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { filesOpenForWriting, KIB, tempDirFor } from '@ron/testkit';
import { requireReceipts } from '../node/check.ts';
import { Consumer } from '../node/consumer.ts';
import { Load } from '../node/load.ts';
import { TestNode } from '../node/node.ts';
import { addProvider, NO_RATES, signed } from '../node/senders.ts';

test('amnesia: interop writes nothing to any disk, and refuses webhooks while mailbox is away', async (t) => {
  const dir = tempDirFor(t);
  const at = (name: string): string => join(dir, name);
  for (const name of ['cwd', 'tmp', 'home']) await mkdir(at(name));
  const watchers = ['cwd', 'tmp', 'home'].map((name) =>
    watch(at(name), (event, file) => void seen.push(`${event} ${name}/${file}`)),
  );
  const seen: string[] = [];
  t.after(() => watchers.forEach((watcher) => watcher.close()));
  const node = await TestNode.start(t, {
    services: ['kms', 'passport', 'mailbox', 'interop'],
    amnesia: true,
    flags: { interop: NO_RATES },
    process: {
      interop: {
        cwd: at('cwd'),
        // Not the compile cache of the test run: Node writes to it.
        env: { TMPDIR: at('tmp'), HOME: at('home'), NODE_DISABLE_COMPILE_CACHE: '1' },
      },
    },
  });
  await addProvider(await node.admin(), 'github');
  const { pid } = node.process('interop');
  const before = await writtenBytes(pid);
  const load = new Load(t, { url: () => node.url, schemes: ['github'], bytes: 4096 });
  load.start();
  await load.moves(100);
  await load.stop();
  assert.ok(load.accepted.every(({ place }) => place === 'mailbox'));
  const mailbox = await node.mailbox();
  const consumer = new Consumer(t, mailbox, ['hooks.github']);
  await consumer.drainUntil(load.accepted.length);
  await requireReceipts(node, load.accepted);

  await node.kill('mailbox');
  const refused = await node.send('POST', '/webhooks/github', signed('github', 'away'));
  assert.equal(refused.status, 503, refused.text);
  assert.ok(['BACKPRESSURE', 'DOWNSTREAM_UNAVAILABLE'].includes(String(refused.headers['x-reason'])));
  assert.deepEqual(await filesOpenForWriting(pid), []);
  // The bodies alone are 400 KiB; the kernel may charge blocks of metadata to any process.
  assert.ok((await writtenBytes(pid)) - before < 64 * KIB);
  assert.equal(await node.process('interop').stop(), 0);
  assert.deepEqual(seen, []);
  await assert.rejects(access(node.dataOf('interop')), { code: 'ENOENT' });
});

/** Sent to a disk by the process since it began, with the file of its socket. */
async function writtenBytes(pid: number): Promise<number> {
  return Number(/^write_bytes: (\d+)$/m.exec(await readFile(`/proc/${pid}/io`, 'utf8'))![1]);
}
