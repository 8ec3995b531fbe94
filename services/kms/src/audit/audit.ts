/**
 * Assembles the audit pipeline of kms.
 *
 *     operations --> trail --> appender --> log --> checkpointer --> anchor --> published --> witness
 */
import { hash } from 'node:crypto';
import { Deadline, NEVER, RonError, sched, type Watch } from '@ron/kernel';
import type { AcceptedAudit, AuditStatus } from '@ron/proto';
import { type Log } from '@ron/telemetry';
import { type ServiceRuntime } from '@ron/service';
import { proveEntry, Witness, type WitnessInit } from '@ron/tlog';
import type { concurrency } from '../concurrency.ts';
import type { KmsConfig } from '../config.ts';
import type { KmsCounters } from '../metrics.ts';
import { notSound, type Vault } from '../vault/vault.ts';
import { Auditor, type Caller } from './auditor.ts';
import { Checkpointer, type CheckpointLog } from './checkpointer.ts';
import { encodeInterruption } from './event.ts';
import { LogSpace } from './log-space.ts';
import { Pruner } from './pruner.ts';
import { Summaries } from './summaries.ts';
import { AuditTrail, type AppendLog, type Queued, type SummaryPace } from './trail.ts';
import { WitnessClient } from './witness-client.ts';

/** How long a shutdown waits for the cosignature of the last checkpoint. */
export const LAST_WITNESS_MS = 1000;

export interface AuditEventOut {
  readonly kind: 'audit';
  readonly problem: string;
}

export type { Caller } from './auditor.ts';

export interface AcceptRequest {
  /** Of the problem that was shown to the operator. */
  readonly problem_sha256: string;
  readonly reason: string;
}

export interface AuditInit {
  readonly runtime: ServiceRuntime<typeof concurrency>;
  readonly vault: Vault;
  /** The configuration in force. */
  readonly config: { readonly value: KmsConfig };
  readonly counters: KmsCounters;
  /** The networks through which the witness may be reached. */
  readonly egress: NonNullable<WitnessInit['egress']>;
  readonly log: Log;
  readonly publish: (event: AuditEventOut) => void;
}

export interface Audit {
  readonly auditor: Auditor;
  readonly trail: AuditTrail;
  readonly checkpointer: Checkpointer;
  readonly witnesses: WitnessClient;
  readonly space: LogSpace;
  readonly pruner: Pruner;
  /** Entries that a checkpoint covers. */
  readonly covered: Watch<number>;
  /** Why nothing may be signed: some state was rolled back. */
  readonly unsound: string | undefined;
  /** Why the log is currently unreliable, although nothing was rolled back. */
  readonly problem: string | undefined;
  /** Why nothing may be signed in mode `strict`: the witness has not cosigned for too long. */
  readonly unwitnessed: string | undefined;
  /** The state of the log for its operator. */
  status(caller: Pick<Caller, 'deadline'>): Promise<AuditStatus>;
  /** Accepts the damage that the request names; the next start goes on with a new log. */
  accept(request: AcceptRequest, caller: Caller): Promise<AcceptedAudit>;
  /** Waits for the checkpoint that covers an entry, and returns the inclusion proof. */
  prove(index: number, caller: Caller): Promise<unknown>;
  /** Writes the waiting entries, signs the final checkpoint and submits it to the witness. Call it when no more entries are recorded. */
  close(): Promise<void>;
}

export function openAudit({ runtime, vault, config, counters, egress, log, publish }: AuditInit): Audit {
  const rollback = rollbackLatch({ vault, counters, log });
  const mode = (): KmsConfig['audit']['mode'] => config.value.audit.mode;
  const covered = runtime.watch('checkpoint', vault.log?.checkpoint?.size ?? 0);
  const { reserve: reserve_bytes, bytes_max } = config.value.audit;
  const space = new LogSpace({ log: vault.log, reserve_bytes, bytes_max });
  const auditLog = guarded(vault, space, () => rollback.problem);
  const summaries = new Summaries(() => config.value.audit.verify_rate);
  const trail = new AuditTrail({
    queue: runtime.mpsc<Queued>('audit'),
    first_entry: interruptionOf(vault),
    log: auditLog,
    summaries,
    pace: () => paceOf(space),
    mode,
    appendDeadline: () => runtime.deadline('audit'),
    onDropped: (count) => counters.audit_dropped(count),
    onAppended: (_count, bytes) => {
      space.wrote(bytes);
      checkpointer.appended();
    },
    onProblem: (error) => {
      log.error({ err: error }, 'failed to write the audit log');
      publish({ kind: 'audit', problem: 'the audit log cannot be written' });
    },
  });
  const checkpointer: Checkpointer = new Checkpointer({
    log: auditLog,
    flushed: (within) => trail.flushed(within),
    due: runtime.mpsc<'due'>('checkpoint_due'),
    covered,
    deadline: () => runtime.deadline('checkpoint'),
    interval_ms: () => config.value.audit.checkpoint_interval,
    every_ops: () => config.value.audit.checkpoint_ops,
    recorder: vault.recorder,
    onMissed: (error) => {
      counters.integrity_failed();
      log.error({ err: error }, 'an audit checkpoint was missed');
      publish({ kind: 'audit', problem: 'a checkpoint was missed' });
    },
  });
  const witness = witnessOf(config.value, egress);
  const witnesses = new WitnessClient({
    witness,
    log: vault.log,
    covered,
    last_cosigned: vault.last_cosigned,
    onRolledBack: rollback.report,
  });
  return {
    auditor: new Auditor({
      trail,
      mode,
      space,
      summaries,
      isUnsound: () => rollback.problem !== undefined,
      onNoRoom: () => counters.audit_no_room(),
    }),
    trail,
    checkpointer,
    witnesses,
    space,
    pruner: new Pruner({ log: vault.log, trail, checkpointer, space, cosigned: () => witnesses.cosigned }),
    covered,
    get unsound() {
      return rollback.problem;
    },
    get problem() {
      return rollback.problem === undefined ? (checkpointer.problem ?? trail.problem) : undefined;
    },
    get unwitnessed() {
      if (mode() !== 'strict' || witnesses.lag_ms <= config.value.audit.witness_max_age) return undefined;
      return `the witness has not cosigned for ${Math.floor(witnesses.lag_ms / 1000)} s: ${witnesses.problem ?? 'it is slow'}`;
    },
    async status({ deadline }) {
      const { problem } = rollback;
      const state = { origin: vault.origin, ...(await vault.logState(deadline.signal)) };
      return problem === undefined ? state : { ...state, problem, problem_sha256: hash('sha256', problem) };
    },
    async accept({ problem_sha256, reason }, { actor, subject, chain, deadline }) {
      const { problem } = rollback;
      if (problem === undefined) throw new RonError('conflict', 'the audit log is sound: there is no damage to accept');
      if (hash('sha256', problem) !== problem_sha256)
        throw new RonError('conflict', `the damage is another one than the request names: ${problem}`);
      const accepted = await vault.accept({ problem, reason, actor, subject, chain }, deadline.signal);
      log.warn({ problem, reason, subject, ...accepted }, 'the damage of the audit log was accepted; restart kms');
      return accepted;
    },
    async prove(index, { deadline }) {
      await checkpointer.waitUntilCovered(index, deadline.signal);
      return await proveEntry(vault.log!, index);
    },
    async close() {
      // [kms I-6] Waiting entries are written before the last checkpoint covers them.
      await trail.close();
      if (vault.log !== undefined && vault.log.size > covered.value) await checkpointer.write();
      const problem = rollback.problem ?? trail.problem;
      if (problem === undefined && vault.log?.size === covered.value) await vault.end(NEVER);
      // Otherwise a rollback to the state before the last entries would look like this shutdown to the witness.
      if (witnesses.problem === undefined) await submitLast(witnesses);
    },
  };
}

async function submitLast(witnesses: WitnessClient): Promise<void> {
  using due = Deadline.after('witness', LAST_WITNESS_MS);
  // A witness that is too slow gets the checkpoint after the next start.
  await witnesses.submit(due.signal).catch(() => undefined);
}

/** The entry for a process that did not shut down cleanly. */
function interruptionOf({ interrupted_ms: from }: Vault): Buffer | undefined {
  return from === undefined ? undefined : encodeInterruption({ from, to: sched.wall_ms() });
}

/** The less room the log has, the fewer summaries. */
function paceOf(space: LogSpace): SummaryPace {
  if (space.shared_bytes === 0) return { every_ms: 60_000, asOne: true };
  return { every_ms: space.isScarce ? 10_000 : 1000, asOne: false };
}

function witnessOf({ audit }: KmsConfig, egress: AuditInit['egress']): Witness | undefined {
  const { witness_url: url, witness_key } = audit;
  return url === undefined ? undefined : new Witness({ url, vkeys: [witness_key!], egress });
}

interface RollbackLatch {
  readonly problem: string | undefined;
  readonly report: (problem: string) => void;
}

/** Keeps the first rollback that is reported, and stops all writes from then on. */
function rollbackLatch({ vault, counters, log }: Pick<AuditInit, 'vault' | 'counters' | 'log'>): RollbackLatch {
  let first: string | undefined;
  const report = (problem: string): void => {
    if (first !== undefined) return;
    first = problem;
    vault.freeze(problem);
    counters.integrity_failed();
    log.error({ problem }, 'kms refuses to sign: some of its state was rolled back');
  };
  if (vault.problem !== undefined) report(vault.problem);
  return {
    get problem() {
      return first;
    },
    report,
  };
}

/** A log that refuses writes with the reason while the vault is not sound. */
function guarded(vault: Vault, space: LogSpace, unsound: () => string | undefined): AppendLog & CheckpointLog {
  const { log } = vault;
  const whenSound = <A>(work: (sound: NonNullable<Vault['log']>) => Promise<A>): Promise<A> => {
    const problem = unsound();
    return log === undefined || problem !== undefined ? Promise.reject(notSound(problem ?? 'no log')) : work(log);
  };
  return {
    get size() {
      return log?.size ?? 0;
    },
    append: (entries, signal) =>
      whenSound(async (sound) => {
        await vault.begin(signal);
        return await sound.append(entries, signal);
      }),
    writeCheckpoint: (signal, recorder) =>
      whenSound(async (sound) => {
        const checkpoint = await sound.writeCheckpoint(signal, recorder);
        await space.save();
        return checkpoint;
      }),
  };
}
