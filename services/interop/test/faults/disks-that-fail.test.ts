/**
 * A disk of interop that fills up, turns read-only, fails or hangs: webhooks are refused with a reason in time, no accepted one is
 * lost, health routes answer, and webhooks are accepted again without a restart.
 */
import assert from 'node:assert/strict';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { FaultyDisk } from '@ron/log/testing';
import type { AcceptedWebhook } from '@ron/proto';
import { eventually, KIB, MIB, mountTmpfs, NO_MOUNT } from '@ron/testkit';
import type { Reply } from '@ron/testkit/service';
import { requireReceipts } from '../node/check.ts';
import { Consumer } from '../node/consumer.ts';
import { HealthWatch } from '../node/health.ts';
import { TestNode } from '../node/node.ts';
import { addProvider, PATIENT, signed } from '../node/senders.ts';

const OTHERS = ['kms', 'passport', 'mailbox'] as const;
const TOPIC = 'hooks.github';
/** The deadline `request`, and a busy machine. */
const ANSWER_MS_MAX = 4500;
const REASONS = ['DOWNSTREAM_UNAVAILABLE', 'BACKPRESSURE'];

/** Deliveries of one provider: accepted ones are kept, a refusal has a reason and comes in time. */
class Provider {
  readonly accepted: AcceptedWebhook[] = [];
  readonly #node: TestNode;
  readonly #consumer: Consumer;
  #n = 0;

  private constructor(node: TestNode, consumer: Consumer) {
    this.#node = node;
    this.#consumer = consumer;
  }

  static async open(t: TestContext, node: TestNode): Promise<Provider> {
    await addProvider(await node.admin(), 'github');
    const provider = new Provider(node, new Consumer(t, await node.mailbox(), [TOPIC]));
    assert.equal(await provider.send(), undefined);
    return provider;
  }

  /** Undefined if it is accepted. */
  async send(bytes = 0): Promise<Reply | undefined> {
    this.#n += 1;
    const begun_ms = performance.now();
    const reply = await this.#node.send('POST', '/webhooks/github', signed('github', `id ${this.#n}`, { bytes }));
    const took_ms = Math.round(performance.now() - begun_ms);
    assert.ok(took_ms < ANSWER_MS_MAX, `the answer took ${took_ms} ms`);
    if (reply.status === 202) {
      this.accepted.push(reply.json);
      return undefined;
    }
    assert.ok([503, 504, 507].includes(reply.status), reply.text);
    assert.ok(REASONS.includes(String(reply.headers['x-reason'])), reply.text);
    return reply;
  }

  async refuses(): Promise<void> {
    assert.ok((await this.send()) !== undefined, 'nothing is accepted');
  }

  async sendsAgain(): Promise<void> {
    await eventually('webhooks are accepted again', async () => (await this.send()) === undefined);
  }

  /** Every accepted one arrives, and has a signed receipt. */
  async check(): Promise<void> {
    const { arrived } = this.#consumer;
    const bodies = (): Set<string> => new Set([...arrived.values()].map(({ b3 }) => b3));
    await eventually('all accepted ones arrive', async () => {
      await this.#consumer.drain();
      return this.accepted.every(({ b3 }) => bodies().has(b3));
    });
    assert.equal(bodies().size, arrived.size, 'none arrives twice');
    await requireReceipts(this.#node, this.accepted);
  }
}

test('a small disk', async (t) => {
  const node = await TestNode.start(t, { services: OTHERS, flags: { interop: PATIENT } });
  const disk = node.dataOf('interop');
  await mkdir(disk, { mode: 0o700 });
  using mount = mountTmpfs(disk, '24m');
  if (mount === undefined) return t.skip(NO_MOUNT);
  await node.start('interop');
  const provider = await Provider.open(t, node);

  await t.test(
    'the spool fills it: webhooks get a reason, and are accepted again once mailbox took the spool',
    async () => {
      const health = new HealthWatch(node);
      await node.kill('mailbox');
      let refused: Reply | undefined;
      for (let sent = 0; sent < 50 && refused === undefined; sent += 1) refused = await provider.send(800 * KIB);
      assert.ok(refused !== undefined, 'the disk is full');
      assert.ok(provider.accepted.length > 5, `${provider.accepted.length} fit`);
      for (let n = 0; n < 5; n += 1) await provider.send(800 * KIB);
      assert.equal((await node.readyz('bridge')).status, 503);
      await node.start('mailbox');
      await provider.sendsAgain();
      await eventually('the spool is empty', async () => (await node.metric('interop', 'spool_deliveries')) === 0);
      await health.stop();
      await provider.check();
    },
  );

  await t.test('other files fill it: webhooks get a reason until there is room', async () => {
    const health = new HealthWatch(node);
    const ballast = join(disk, 'ballast');
    await mkdir(ballast);
    let files = 0;
    // The spool may still give room back.
    await eventually('the gate says that the disk is full', async () => {
      const file = join(ballast, String((files += 1)));
      await assert.rejects(writeFile(file, Buffer.alloc(24 * MIB)), { code: 'ENOSPC' });
      const refused = await provider.send();
      return refused !== undefined && (await node.readyz()).closed['receipts']?.includes('full') === true;
    });
    await rm(ballast, { recursive: true });
    await provider.sendsAgain();
    await health.stop();
    await provider.check();
  });

  await t.test(
    'it is read-only at a start: nothing is accepted, and a start after the remount has everything',
    async () => {
      await node.kill('interop');
      assert.ok(mount.remount('ro'));
      const started = await node.start('interop').then(
        () => true,
        () => false,
      );
      if (started) assert.ok((await provider.send()) !== undefined);
      await node.kill('interop');
      assert.ok(mount.remount('rw'));
      await node.start('interop');
      await provider.sendsAgain();
      await provider.check();
    },
  );
  await node.kill('interop');
  return undefined;
});

test('a disk that fails or hangs while interop runs', async (t) => {
  const disk = new FaultyDisk();
  const node = await TestNode.start(t, {
    services: [...OTHERS, 'interop'],
    inside: { fs: disk },
    flags: { interop: PATIENT },
  });
  const provider = await Provider.open(t, node);

  const faults = [
    ['EIO of sync', () => disk.fail('receipts', 'EIO', 'sync')],
    ['EIO of write', () => disk.fail('receipts', 'EIO', 'write')],
    ['EROFS', () => disk.fail('receipts', 'EROFS', 'write', 'create', 'sync')],
    ['ENOSPC', () => disk.fail('receipts', 'ENOSPC', 'write')],
    ['a sync that hangs', () => disk.hold('receipts', 'sync')],
  ] as const;
  for (const [name, begin] of faults)
    await t.test(`the receipt log, ${name}: webhooks get a reason and the gate says so, until it is over`, async () => {
      const health = new HealthWatch(node);
      begin();
      const refused = await Promise.all(Array.from({ length: 3 }, () => provider.send()));
      assert.ok(!refused.includes(undefined), 'none is accepted without a receipt');
      if (!name.includes('hangs'))
        await eventually('the gate says so', async () => {
          await provider.refuses();
          return (await node.readyz()).closed['receipts'] !== undefined;
        });
      disk.mend();
      await provider.sendsAgain();
      assert.equal((await node.readyz()).closed['receipts'], undefined);
      await health.stop();
      await provider.check();
    });

  for (const [name, begin] of [
    ['EIO', () => disk.fail('spool', 'EIO')],
    ['a sync that hangs', () => disk.hold('spool', 'sync')],
  ] as const)
    await t.test(`the spool without mailbox, ${name}: webhooks get a reason, until it is over`, async () => {
      const health = new HealthWatch(node);
      await node.kill('mailbox');
      begin();
      const refused = await Promise.all(Array.from({ length: 3 }, () => provider.send()));
      assert.ok(!refused.includes(undefined), 'none is accepted');
      disk.mend();
      await provider.sendsAgain();
      await node.start('mailbox');
      await health.stop();
      await provider.check();
    });

  await t.test('the files of providers, EIO: a change is refused, and webhooks go on', async () => {
    const admin = await node.admin();
    disk.fail('providers', 'EIO');
    await assert.rejects(addProvider(admin, 'stripe'));
    assert.equal(await provider.send(), undefined);
    disk.mend();
    await addProvider(admin, 'stripe');
    await provider.check();
  });

  await t.test(
    'the audit log, EIO at a start: interop starts, counts lost events, and writes it once it can',
    async () => {
      const log = join(node.dataOf('interop'), 'audit.log');
      await node.kill('interop');
      const before = await readFile(log, 'utf8');
      disk.fail('audit.log', 'EIO', 'read');
      await node.start('interop');
      assert.equal(await provider.send(), undefined);
      await eventually(
        'the lost event is counted',
        async () => (await node.metric('interop', 'audit_drop_total')) >= 1,
      );
      disk.mend();
      assert.equal(await provider.send(), undefined);
      await eventually('the audit log grows', async () => (await readFile(log, 'utf8')).length > before.length);
      assert.ok((await readFile(log, 'utf8')).startsWith(before), 'its lines are kept');
      await provider.check();
    },
  );
});
