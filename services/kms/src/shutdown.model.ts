/**
 * Model of the shutdown, on the real batch queue, audit trail and checkpointer. A stop may come at any moment.
 *
 * Every task ends. Every accepted request gets a response. Completed work is in the log, or in its last gap if it came too
 * late. The last checkpoint covers all of it.
 */
import assert from 'node:assert/strict';
import type { Build, World } from '@ron/explorer';
import type { SignedCheckpoint } from '@ron/tlog';
import { Deadline, isRonError, Mpsc, touch, Watch, type BatchQueue } from '@ron/kernel';
import type { Checkpointer } from './audit/checkpointer.ts';
import { Summaries } from './audit/summaries.ts';
import type { AuditTrail, Queued } from './audit/trail.ts';

/** The classes under test; the mutation tests replace one of them. */
export interface Parts {
  readonly BatchQueue: typeof BatchQueue;
  readonly AuditTrail: typeof AuditTrail;
  readonly Checkpointer: typeof Checkpointer;
}

const NEVER = new AbortController().signal;
const BATCH = { begun: () => undefined };
const ENTRY = { bytes: Buffer.from('{"op":"sign"}'), time_ms: 0 };

/** A log in memory that counts its entries, the operations that they record, and its gaps. */
class ModelLog {
  readonly #world: World;
  entries = 0;
  /** A gap may record several operations. */
  recorded = 0;
  gaps = 0;

  constructor(world: World) {
    this.#world = world;
  }

  get size(): number {
    touch(this);
    return this.entries;
  }

  async append(entries: readonly Uint8Array[]): Promise<{ first: number }> {
    await this.#world.io('append');
    touch(this);
    const first = this.entries;
    this.entries += entries.length;
    for (const entry of entries) {
      const { op, count } = JSON.parse(Buffer.from(entry).toString()) as { op: string; count: number };
      this.recorded += op === 'gap' ? count : 1;
      if (op === 'gap') this.gaps += 1;
    }
    return { first };
  }

  async writeCheckpoint(): Promise<SignedCheckpoint> {
    const { size } = this;
    await this.#world.io('checkpoint');
    return { size, origin: 'log', root: new Uint8Array(), text: '' };
  }
}

/** The real pipeline on the model log, and the outcomes of all requests. */
class ModelService {
  readonly log: ModelLog;
  readonly covered = new Watch('checkpoint', 0);
  readonly trail: AuditTrail;
  readonly checkpointer: Checkpointer;
  readonly queue: BatchQueue<typeof BATCH>;
  /** Requests in progress. */
  readonly busy = new Watch('busy', 0);
  /** The checkpoint's deadline passed: then there is none, and readiness reports it. */
  missed = false;
  isInTime = true;
  signed = 0;
  answered = 0;

  constructor(parts: Parts, world: World) {
    this.log = new ModelLog(world);
    this.trail = new parts.AuditTrail({
      queue: new Mpsc<Queued>('audit', 8),
      log: this.log,
      summaries: new Summaries(() => 1),
      mode: () => 'strict',
      appendDeadline: () => Deadline.after('audit', 1e9),
      onDropped: () => undefined,
      onAppended: () => this.checkpointer.appended(),
      onProblem: () => undefined,
    });
    this.checkpointer = new parts.Checkpointer({
      log: this.log,
      flushed: (signal) => this.trail.flushed(signal),
      due: new Mpsc('due', 1),
      covered: this.covered,
      deadline: () => Deadline.after('checkpoint', 1e9),
      interval_ms: () => 1e6,
      every_ops: () => 1e6,
      recorder: { beforePublish: async () => undefined },
      onMissed: () => (this.missed = true),
    });
    this.queue = new parts.BatchQueue('sign', { capacity: 8, batch_max: 2, newBatch: () => BATCH });
  }

  async request(world: World): Promise<void> {
    const { trail, queue, busy } = this;
    busy.set(busy.value + 1);
    let wasTried = false;
    const sign = async (): Promise<void> => {
      wasTried = true;
      await world.io('sign');
      this.signed += 1;
    };
    try {
      trail.begin();
      await queue.submit('acme', 1, Deadline.after('sign', 1e9), sign).catch((error: unknown) => {
        trail.cancel();
        throw error;
      });
      await trail.record(ENTRY, NEVER);
    } catch (error) {
      const isLate = isRonError(error, 'timeout') && !wasTried;
      assert.ok(isLate || isRonError(error, 'draining'), String(error));
      assert.ok(!wasTried || !this.isInTime, 'a client that was in time is not refused');
    }
    touch(this.log);
    this.answered += 1;
    busy.set(busy.value - 1);
  }
}

export function shutdown(parts: Parts, clients: number): Build {
  return (world) => {
    const service = new ModelService(parts, world);
    const { log, covered, trail, checkpointer, queue, busy } = service;
    const stopping = new AbortController();
    const tasks = new Watch('tasks', 2);
    for (let at = 0; at < clients; at++) world.task(`client ${at}`, () => service.request(world));
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
      service.isInTime = world.choose('drain', ['in time', 'too late']) === 'in time';
      if (service.isInTime) await until(busy, 0);
      stopping.abort();
      await until(tasks, 0);
      await trail.close();
      if (log.size > covered.value) await checkpointer.write();
    });
    return {
      state: () => {
        const { signed, answered, isInTime, missed } = service;
        return [log.entries, log.recorded, log.gaps, covered.value, signed, answered, isInTime, missed].join();
      },
      final: () => {
        // [kms I-5] [kms I-6]
        assert.equal(service.answered, clients, 'every request is answered');
        assert.ok(log.recorded >= service.signed, 'completed work is in the log');
        if (service.isInTime) {
          assert.deepEqual([log.recorded, log.gaps], [service.signed, 0], 'nothing else is in the log');
        }
        if (!service.missed) assert.equal(covered.value, log.entries, 'the last checkpoint covers all of it');
      },
    };
  };
}

async function until(watch: Watch<number>, value: number): Promise<void> {
  const receiver = watch.subscribe();
  while (receiver.value !== value) await receiver.changed(NEVER);
}
