/**
 * Assembles the audit pipeline of kms.
 *
 *     operations --> trail --> appender --> log --> checkpointer --> anchor --> published --> witness
 */
import { NEVER, sched, type Watch } from '@ron/kernel';
import { type Log } from '@ron/telemetry';
import { type ServiceRuntime } from '@ron/service';
import { Witness, type WitnessInit } from '@ron/tlog';
import type { concurrency } from '../concurrency.ts';
import type { KmsConfig } from '../config.ts';
import type { KmsCounters } from '../metrics.ts';
import { proofOf } from './proof.ts';
import { notSound, type Vault } from '../vault/vault.ts';
import { Auditor, type Caller } from './auditor.ts';
import { Checkpointer, type CheckpointLog } from './checkpointer.ts';
import { encodeInterruption } from './event.ts';
import { AuditTrail, type AppendLog, type Queued } from './trail.ts';
import { WitnessClient } from './witness-client.ts';

export interface AuditEventOut {
  readonly kind: 'audit';
  readonly problem: string;
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
  /** Entries that a checkpoint covers. */
  readonly covered: Watch<number>;
  /** Why nothing may be signed: some state was rolled back. */
  readonly unsound: string | undefined;
  /** Why the log is currently unreliable. */
  readonly problem: string | undefined;
  /** Waits for the checkpoint that covers an entry, and returns the inclusion proof. */
  prove(index: number, caller: Caller): Promise<unknown>;
  /** Writes the waiting entries and signs the final checkpoint. Call it when no more entries are recorded. */
  close(): Promise<void>;
}

export function openAudit({ runtime, vault, config, counters, egress, log, publish }: AuditInit): Audit {
  let unsound: string | undefined;
  const onUnsound = (problem: string): void => {
    if (unsound !== undefined) return;
    unsound = problem;
    vault.freeze(problem);
    counters.integrity_failed();
    log.error({ problem }, 'kms refuses to sign: some of its state was rolled back');
  };
  if (vault.problem !== undefined) onUnsound(vault.problem);
  const mode = (): KmsConfig['audit']['mode'] => config.value.audit.mode;
  const covered = runtime.watch('checkpoint', vault.log?.checkpoint?.size ?? 0);
  const { interrupted_ms } = vault;
  const auditLog = guarded(vault, () => unsound);
  const trail = new AuditTrail({
    queue: runtime.mpsc<Queued>('audit'),
    lead: interrupted_ms === undefined ? undefined : encodeInterruption({ from: interrupted_ms, to: sched.wall_ms() }),
    log: auditLog,
    mode,
    appendDeadline: () => runtime.deadline('audit'),
    onDropped: (count) => counters.audit_dropped(count),
    onAppended: () => checkpointer.appended(),
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
  const { witness_url: url, witness_key } = config.value.audit;
  const witness = url === undefined ? undefined : new Witness({ url, vkeys: [witness_key!], egress });
  const witnesses = new WitnessClient({ witness, log: vault.log, covered, onRolledBack: onUnsound });
  return {
    auditor: new Auditor(trail, mode),
    trail,
    checkpointer,
    witnesses,
    covered,
    get unsound() {
      return unsound;
    },
    get problem() {
      return unsound ?? checkpointer.problem ?? trail.problem;
    },
    async prove(index, { deadline }) {
      await checkpointer.waitUntilCovered(index, deadline.signal);
      return await proofOf(vault.log!, index);
    },
    async close() {
      // [kms I-6] Waiting entries are written before the last checkpoint covers them.
      await trail.close();
      if (vault.log !== undefined && vault.log.size > covered.value) await checkpointer.write();
      const isWhole = vault.log?.size === covered.value && trail.problem === undefined && unsound === undefined;
      if (isWhole) await vault.end(NEVER);
    },
  };
}

/** A log that refuses writes with the reason while the vault is not sound. */
function guarded(vault: Vault, unsound: () => string | undefined): AppendLog & CheckpointLog {
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
    writeCheckpoint: (signal, recorder) => whenSound((sound) => sound.writeCheckpoint(signal, recorder)),
  };
}
