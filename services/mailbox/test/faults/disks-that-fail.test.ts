/**
 * A disk that fills up, turns read-only or fails to sync: sends are refused with the reason, readiness and the log state it,
 * receivers continue where they can, and nothing that was acknowledged is lost.
 */
import assert from 'node:assert/strict';
import { mkdir, rm, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { FaultyDisk } from '@ron/log/testing';
import { bytesOf, eventually, KIB, MIB, mountTmpfs, NO_MOUNT, tempDir, type Mount } from '@ron/testkit';
import { assertRefusal, type Reply } from '@ron/testkit/service';
import { startClient, type ProcessClient } from '../process-client.ts';
import { startService, type TestMailbox } from '../support.ts';

interface SmallDisk {
  readonly disk: string;
  readonly mount: Mount;
  readonly start: () => Promise<ProcessClient>;
}

/** Half of a disk of 16 MiB. */
const RESERVE_BYTES = 8 * MIB;

/** A process on a disk of 16 MiB. */
async function onSmallDisk(t: TestContext, run: (small: SmallDisk) => Promise<void>): Promise<void> {
  await using temp = await tempDir();
  const disk = join(temp.path, 'data');
  await mkdir(disk);
  using mount = mountTmpfs(disk, '16m');
  if (mount === undefined) return t.skip(NO_MOUNT);
  const flags = ['--mailbox.segment_bytes=4MiB'];
  await run({ disk, mount, start: () => startClient(temp.path, { flags }) });
}

const gateOf = async (mailbox: ProcessClient): Promise<string | undefined> => (await mailbox.readyz()).reasons['disk'];

/** Fills the disk down to a message of one byte; returns the sequence numbers. */
async function fillUp(mailbox: ProcessClient): Promise<number[]> {
  const all: number[] = [];
  for (const bytes of [300 * KIB, 20 * KIB, 1]) {
    const { seqs, refusal } = await mailbox.fill(bytes);
    assertRefusal(refusal, 507, 'storage_full');
    assert.equal(refusal.problem?.retryable, true);
    all.push(...seqs);
  }
  return all;
}

describe('a full disk', () => {
  test('[mailbox I-10] sends get 507, receives, nacks, extends and acks go on, and an emptied queue accepts sends again', async (t) => {
    await onSmallDisk(t, async ({ disk, start }) => {
      await using mailbox = await start();
      assert.equal(await gateOf(mailbox), undefined);
      const sent = await fillUp(mailbox);
      assert.ok(sent.length > 30, `${sent.length} messages fit`);
      const ready = await mailbox.readyz();
      assert.deepEqual([ready.status, ready.degraded, ready.reasons['disk']], [200, ['disk'], 'the disk is full']);
      assert.equal(mailbox.process.logged('disk full')?.['level'], 'warn');
      assertRefusal(await mailbox.post('send', { messages: [{ topic: 'jobs', payload: '' }] }), 507, 'storage_full');
      // At its reserve exactly: the gate must not open while no message fits.
      const { bavail, bsize } = await statfs(disk);
      assert.ok(bavail * bsize <= RESERVE_BYTES + 4 * KIB, `${bavail * bsize} bytes are free`);

      const [first] = await mailbox.receive('jobs', { max: 1 });
      assert.deepEqual(await mailbox.settle('extend', [first!], { visibility_ms: 60_000 }), ['ok']);
      assert.deepEqual(await mailbox.settle('nack', [first!], { delay_ms: 0 }), ['ok']);
      assert.equal(await gateOf(mailbox), 'the disk is full');
      const received: number[] = [];
      await eventually('the queue is empty', async () => {
        received.push(...(await mailbox.empty()));
        return received.length >= sent.length;
      });
      assert.deepEqual(
        received.toSorted((a, b) => a - b),
        sent,
      );

      await eventually('compaction makes room', async () => (await mailbox.send(bytesOf(MIB, 1))).status === 201);
      await eventually('the gate opens', async () => (await gateOf(mailbox)) === undefined);
      assert.ok((await mailbox.process.metric('mailbox_compacted_bytes_total')) > 2 * MIB);
      const ledger = await mailbox.ledger();
      assert.deepEqual([ledger.sent, ledger.acked, ledger.ready], [sent.length + 1, sent.length, 1]);
    });
  });

  test('[mailbox I-10] extends cannot use up the reserve, and the queue can be emptied after them', async (t) => {
    await onSmallDisk(t, async ({ disk, start }) => {
      await using mailbox = await start();
      const sent = await fillUp(mailbox);
      const leased = await mailbox.receive('jobs', { visibility_ms: 3_600_000, bytes_max: 8 * MIB });
      // Each call writes up to 128 leases: together more than the part of the reserve for them.
      for (let bytes = 0; bytes < RESERVE_BYTES / 2; bytes += leased.length * 24)
        await mailbox.settle('extend', leased, { visibility_ms: 3_600_000 });
      const { bavail, bsize } = await statfs(disk);
      assert.ok(bavail * bsize > RESERVE_BYTES / 2, `${bavail * bsize} bytes are free`);
      const [one, ...others] = leased;
      await mailbox.settle('nack', [one!], { dead: true });
      await mailbox.settle('ack', others);
      await mailbox.empty();
      const { ready, leased: held, acked, dead } = await mailbox.ledger();
      assert.deepEqual([ready, held, acked + dead], [0, 0, sent.length]);
      await eventually('compaction makes room', async () => (await mailbox.send(bytesOf(MIB, 1))).status === 201);
    });
  });

  test('killed while it is full: a restart has every message, refuses sends, and the queue can be emptied', async (t) => {
    await onSmallDisk(t, async ({ start }) => {
      let sent: number[];
      {
        await using mailbox = await start();
        sent = await fillUp(mailbox);
        await mailbox.process.kill();
      }
      await using mailbox = await start();
      assert.equal(await gateOf(mailbox), 'the disk is full', 'before the first send');
      assertRefusal(await mailbox.send(bytesOf(1)), 507, 'storage_full');
      assert.deepEqual(await mailbox.empty(), sent);
      await eventually('compaction makes room', async () => (await mailbox.send(bytesOf(MIB, 1))).status === 201);
      assert.equal(await mailbox.process.metric('integrity_fail_total{reason="ledger"}'), 0);
    });
  });

  test('filled by other files to the last byte: acks fail or succeed, none is lost, and all work again with the space', async (t) => {
    await onSmallDisk(t, async ({ disk, start }) => {
      const acked = new Set<number>();
      const sent: number[] = [];
      {
        await using mailbox = await start();
        // Their acks need more than the last page of the segment.
        for (let n = 0; n < 100; n += 1) sent.push((await mailbox.send(bytesOf(1, n))).json.seq);
        const leased = await mailbox.receive('jobs', { visibility_ms: 3_600_000 });
        const ballast = join(disk, 'ballast');
        await assert.rejects(writeFile(ballast, Buffer.alloc(16 * MIB)), { code: 'ENOSPC' });
        for (const message of leased) {
          const { status, json } = await mailbox.post('jobs/ack', { tokens: [message.token] });
          if (status === 200) acked.add(message.seq);
          else assert.equal(json.code, 'storage_full');
        }
        assert.ok(acked.size < leased.length, 'acks need space');
        assertRefusal(await mailbox.send(bytesOf(1)), 507, 'storage_full');
        assert.equal(await gateOf(mailbox), 'the disk is full');
        await mailbox.process.kill();
        await rm(ballast);
      }
      await using mailbox = await start();
      assert.equal(await gateOf(mailbox), undefined);
      assert.equal(await mailbox.process.metric('integrity_fail_total{reason="ledger"}'), 0);
      const { ledger } = (await mailbox.get('jobs')).json;
      assert.deepEqual([ledger.sent, ledger.acked], [sent.length, acked.size]);
      assert.equal((await mailbox.send(bytesOf(1))).status, 201);
    });
  });
});

describe('a read-only disk', () => {
  test('at the start: reads are answered, writes get 503, the gate states it, and a restart after the remount has everything', async (t) => {
    await onSmallDisk(t, async ({ mount, start }) => {
      const sent: number[] = [];
      {
        await using mailbox = await start();
        for (let n = 0; n < 5; n += 1) sent.push((await mailbox.send(bytesOf(1000, n))).json.seq);
        await mailbox.process.kill();
      }
      assert.ok(mount.remount('ro'));
      {
        await using mailbox = await start();
        const ready = await mailbox.readyz();
        assert.deepEqual([ready.status, ready.degraded], [200, ['disk']]);
        assert.match(ready.reasons['disk']!, /read-only/);
        assert.match(String(mailbox.process.logged('disk failed')?.['problem']), /read-only/);
        assert.deepEqual(
          (await mailbox.get('jobs/peek?limit=10')).json.messages.map(({ seq }: { seq: number }) => seq),
          sent,
        );
        assertRefusal(await mailbox.send(bytesOf(1)), 503, 'not_ready');
        assertRefusal(await mailbox.post('jobs/receive', {}), 503, 'not_ready');
        assert.equal((await mailbox.ledger()).ready, sent.length);
        assert.equal(await mailbox.process.stop(), 0);
      }
      assert.ok(mount.remount('rw'));
      await using mailbox = await start();
      assert.equal(await gateOf(mailbox), undefined);
      assert.deepEqual(await mailbox.empty(), sent);
    });
  });
});

describe('a disk that fails while mailbox runs', () => {
  for (const [code, steps, reason] of [
    ['EIO', ['sync'], 'the disk failed (EIO)'],
    ['EIO', ['write'], 'the disk failed (EIO)'],
    ['EROFS', ['write', 'create', 'sync'], 'the disk is read-only (EROFS)'],
    ['ENOSPC', ['write'], 'the disk is full'],
  ] as const) {
    test(`${code} of ${steps.join(', ')}: no send is acknowledged, gate and log state it, and the gate opens without a request`, async () => {
      await using temp = await tempDir();
      const dir = join(temp.path, 'data');
      const disk = new FaultyDisk();
      const sent: number[] = [];
      const gate = async (service: TestMailbox): Promise<string | undefined> => {
        const { gates } = (await service.send('GET', '/readyz')).json;
        return gates.find((each: { gate: string }) => each.gate === 'disk').reason;
      };
      const send = async (service: TestMailbox, n: number): Promise<Reply> => {
        const reply = await service.call('POST', '/v1/mailbox/send', {
          messages: [{ topic: 'jobs', payload: bytesOf(500, n).toString('base64') }],
        });
        if (reply.status === 200) sent.push(reply.json.results[0].seq);
        return reply;
      };
      {
        await using service = await startService({ dir, fs: disk });
        assert.equal((await send(service, 1)).status, 200);
        disk.fail('segments', code, ...steps);
        for (let n = 0; n < 3; n += 1)
          assertRefusal(
            await send(service, 2),
            code === 'ENOSPC' ? 507 : 503,
            code === 'ENOSPC' ? 'storage_full' : 'not_ready',
          );
        assert.equal((await service.call('GET', '/v1/mailbox/jobs')).json.ledger.sent, 1, 'none is stored');
        assert.equal(await gate(service), reason);
        const line = service.lines.find((each) => each.includes('disk failed'));
        assert.ok(line?.includes('"error"') && line.includes(reason), `${line}`);
        disk.mend();
        await eventually('the gate opens', async () => (await gate(service)) === undefined);
        assert.ok(service.lines.some((each) => each.includes('disk recovered')));
        assert.equal((await send(service, 3)).status, 200);
      }
      await using service = await startService({ dir });
      const { messages } = (await service.call('POST', '/v1/mailbox/jobs/receive', { max: 10 })).json;
      assert.deepEqual(
        messages.map(({ seq }: { seq: number }) => seq),
        sent,
      );
      assert.equal(await service.metric('integrity_fail_total{reason="ledger"}'), 0);
    });
  }
});
