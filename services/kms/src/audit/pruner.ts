/**
 * Removes old entries of the audit log, for the operator.
 *
 * Contract: only whole bundles behind the last checkpoint, and with a witness behind the last one that it cosigned, are
 * removed. The log announces it with an entry, and a signed checkpoint covers that entry before anything is removed. A crash
 * in between removes nothing or is completed by the next start.
 * Bound: one pruning at a time, and one that waits. Overflow: `busy`. Cancellation: by the caller's deadline, until the removal begins.
 */
import { Mutex, RonError, sched } from '@ron/kernel';
import type { AuditPruned } from '@ron/proto';
import { BUNDLE_ENTRIES, type TransparencyLog } from '@ron/tlog';
import type { Caller } from './auditor.ts';
import type { Checkpointer } from './checkpointer.ts';
import { encodePrune } from './event.ts';
import type { LogSpace } from './log-space.ts';
import type { AuditTrail } from './trail.ts';

export interface PrunerInit {
  /** Undefined if it could not be opened. */
  readonly log: TransparencyLog | undefined;
  readonly trail: Pick<AuditTrail, 'begin' | 'record'>;
  readonly checkpointer: Pick<Checkpointer, 'waitUntilCovered'>;
  readonly space: Pick<LogSpace, 'forget'>;
  /** Entries that the witness has cosigned; undefined without a witness. */
  readonly cosigned: () => number | undefined;
}

export class Pruner {
  readonly #init: PrunerInit;
  readonly #one = new Mutex('audit.prune', { waiters_max: 1 });

  constructor(init: PrunerInit) {
    this.#init = init;
  }

  /** Removes the entries before `index`, rounded down to the beginning of a bundle. */
  prune(index: number, caller: Caller): Promise<AuditPruned> {
    return this.#one.run(caller.deadline.signal, () => this.#prune(index, caller));
  }

  async #prune(index: number, caller: Caller): Promise<AuditPruned> {
    const { log, trail, checkpointer, space } = this.#init;
    if (log === undefined) throw new RonError('audit_integrity', 'the audit log could not be opened');
    const before = Math.floor(index / BUNDLE_ENTRIES) * BUNDLE_ENTRIES;
    if (before <= log.first) return { before: log.first, freed_bytes: 0, log_bytes: log.bytes };
    this.#requireSigned(before, log);
    const { actor, subject, chain, deadline } = caller;
    const time_ms = sched.wall_ms();
    trail.begin();
    const bytes = encodePrune({ actor, subject, chain, before, time_ms });
    const entry = await trail.record({ bytes, time_ms }, deadline.signal);
    if (entry === undefined) throw new RonError('degraded_audit', 'the entry of the pruning could not be written');
    await checkpointer.waitUntilCovered(entry, deadline.signal);
    const freed_bytes = await log.prune({ before, entry }, deadline.signal);
    space.forget();
    return { before, freed_bytes, log_bytes: log.bytes };
  }

  #requireSigned(before: number, { checkpoint }: TransparencyLog): void {
    const signed = checkpoint?.size ?? 0;
    const cosigned = this.#init.cosigned() ?? signed;
    if (before <= Math.min(signed, cosigned)) return;
    const by = cosigned < signed ? `the witness has cosigned ${cosigned}` : `a checkpoint covers ${signed}`;
    throw new RonError('conflict', `entries before ${before} cannot be removed: ${by}`);
  }
}
