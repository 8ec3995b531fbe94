/**
 * Model of the shutdown, on the real batch queue, audit trail and checkpointer. A stop may come at any moment.
 *
 * Every task ends. Every accepted request gets a response. Completed work is in the log, or in its last gap if it came too
 * late. The last checkpoint covers all of it.
 */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { Deadline, isRonError, Mpsc, touch, Watch, type BatchQueue } from '@ron/kernel';
import type { Checkpointer } from './audit/checkpointer.ts';
import type { AuditTrail, Queued } from './audit/trail.ts';

/** The classes under test; the mutation tests replace one of them. */
export interface Parts {
  readonly BatchQueue: typeof BatchQueue;
  readonly AuditTrail: typeof AuditTrail;
  readonly Checkpointer: typeof Checkpointer;
}

const NEVER = new AbortController().signal;
const BATCH = { begun: () => undefined };
const EVENT = {
  op: 'sign',
  tenant: 'acme',
  kid: 'k',
  alg: 'a',
  purpose: 'p',
  time_ms: 0,
  result: 'ok',
  actor: 'a',
} as const;

export function shutdown(parts: Parts, clients: number): Build {
  return (world) => {
    /** Entries, and the operations that they record: a gap may record several. */
    const log = { size: 0, told: 0, gaps: 0 };
    /** The checkpoint's deadline passed: then there is none, and readiness reports it. */
    let missed = false;
    const trail: AuditTrail = new parts.AuditTrail({
      queue: new Mpsc<Queued>('audit', 8),
      log: {
        append: async (entries) => {
          await world.io('append');
          touch(log);
          const first = log.size;
          log.size += entries.length;
          for (const entry of entries) {
            const { op, count } = JSON.parse(Buffer.from(entry).toString()) as { op: string; count: number };
            log.told += op === 'gap' ? count : 1;
            if (op === 'gap') log.gaps += 1;
          }
          return { first };
        },
      },
      mode: () => 'strict',
      appendDeadline: () => Deadline.after('audit', 1e9),
      onDropped: () => undefined,
      onAppended: () => checkpointer.appended(),
      onProblem: () => undefined,
    });
    const covered = new Watch('checkpoint', 0);
    const checkpointer = new parts.Checkpointer({
      log: {
        get size() {
          touch(log);
          return log.size;
        },
        writeCheckpoint: async () => {
          touch(log);
          const { size } = log;
          await world.io('checkpoint');
          return { size, origin: 'log', root: new Uint8Array(), text: '' };
        },
      },
      flushed: (signal) => trail.flushed(signal),
      due: new Mpsc('due', 1),
      covered,
      deadline: () => Deadline.after('checkpoint', 1e9),
      interval_ms: () => 1e6,
      every_ops: () => 1e6,
      recorder: { beforePublish: async () => undefined },
      onMissed: () => (missed = true),
    });
    const queue = new parts.BatchQueue('sign', { capacity: 8, batch_max: 2, newBatch: () => BATCH });

    const stopping = new AbortController();
    const busy = new Watch('busy', 0);
    const tasks = new Watch('tasks', 2);
    let isInTime = true;
    let signed = 0;
    let answered = 0;
    for (let at = 0; at < clients; at++) {
      world.task(`client ${at}`, async () => {
        busy.set(busy.value + 1);
        let wasTried = false;
        const sign = async (): Promise<void> => {
          wasTried = true;
          await world.io('sign');
          signed += 1;
        };
        try {
          trail.begin();
          await queue.submit('acme', 1, Deadline.after('sign', 1e9), sign).catch((error: unknown) => {
            trail.cancel();
            throw error;
          });
          await trail.record(EVENT, NEVER);
        } catch (error) {
          const isLate = isRonError(error, 'timeout') && !wasTried;
          assert.ok(isLate || isRonError(error, 'draining'), String(error));
          assert.ok(!wasTried || !isInTime, 'a client that was in time is not refused');
        }
        touch(log);
        answered += 1;
        busy.set(busy.value - 1);
      });
    }
    world.task('signer', async () => {
      await queue.serve({ signal: NEVER, stopping: stopping.signal });
      tasks.set(tasks.value - 1);
    });
    world.task('appender', async () => {
      await trail.run(stopping.signal).catch(() => undefined);
      tasks.set(tasks.value - 1);
    });
    world.task('stop', async () => {
      queue.close();
      // The listener is drained, or its deadline passed with requests in progress.
      isInTime = world.choose('drain', ['in time', 'too late']) === 'in time';
      if (isInTime) await until(busy, 0);
      stopping.abort();
      await until(tasks, 0);
      await trail.close();
      touch(log);
      if (log.size > covered.value) await checkpointer.write();
    });
    return {
      state: () => [log.size, log.told, log.gaps, covered.value, signed, answered, isInTime, missed].join(),
      final: () => {
        // [kms I-5] [kms I-6]
        assert.equal(answered, clients, 'every request is answered');
        assert.ok(log.told >= signed, 'completed work is in the log');
        if (isInTime) assert.deepEqual([log.told, log.gaps], [signed, 0], 'nothing else is in the log');
        if (!missed) assert.equal(covered.value, log.size, 'the last checkpoint covers all of it');
      },
    };
  };
}

async function until(watch: Watch<number>, value: number): Promise<void> {
  const receiver = watch.subscribe();
  while (receiver.value !== value) await receiver.changed(NEVER);
}
