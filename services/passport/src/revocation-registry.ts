/**
 * The registry of revocations, which decides and stores them.
 *
 * Contract: `revoke` resolves when the revocation is on disk and in force, and waiting polls have been notified. Its epoch is
 * above that of every capability that any service accepts now, and above every earlier epoch of the subject, so a clock that
 * goes backwards undoes nothing; capabilities issued afterwards have that epoch. A revoked id stays in the document until every
 * capability with it has expired.
 *   If the stored document is older than one that was stored before, it was rolled back, and later revocations are unknown.
 * Then only capabilities of the node itself are valid, no document is published, and only `all` can be revoked, which
 * resolves the problem.
 * Bound: `SUBJECTS_MAX` subjects, `IDS_MAX` ids; those whose capabilities have all expired are removed. Overflow:
 * `storage_full`, then revoke all. Cancellation: a revocation whose signal aborts before its write begins is not made.
 */
import {
  CLOCK_SKEW_MS,
  floorAt,
  IDS_MAX,
  isNodeSubject,
  isObsolete,
  NO_REVOCATIONS,
  Revocations,
  SUBJECTS_MAX,
  subjectTag,
  type RevocationDocument,
  type RevocationEpochs,
} from '@ron/auth';
import { RonError, sched, sleep, type Watch } from '@ron/kernel';
import type { RevokeEntry } from '@ron/proto';
import { EMPTY_OUTBOX, withEntry, type Outbox, type OutboxStore } from './audit/outbox.ts';

/** The capabilities to revoke: those of a subject, one with all that was issued from it, or all. */
export type RevocationTarget = { readonly subject: string } | { readonly capability_id: string } | 'all';

/** A new capability waits at most this long after a revocation of its subject; longer only if the clock was set back. */
const EARLY_MS_MAX = 100;

/** The stored state: a sealed file, or memory. */
export interface RevocationState {
  readonly document: RevocationDocument;
  /** Revocations that are not in the audit log yet. */
  readonly outbox: Outbox;
}

export interface RevocationStore {
  readonly state: RevocationState;
  /** The version of the newest document that was ever stored. */
  readonly version_seen: number;
  update(change: (state: RevocationState) => RevocationState, signal: AbortSignal): Promise<unknown>;
}

/** The entry of a revocation in the audit log, given its epoch. */
export type EntryOf = (epoch: number) => RevokeEntry;

export class RevocationRegistry implements RevocationEpochs {
  readonly #store: RevocationStore;
  readonly #documents: Watch<RevocationDocument>;
  readonly #revocations = new Revocations();

  constructor(store: RevocationStore, news: Watch<RevocationDocument>) {
    this.#store = store;
    this.#documents = news;
    this.#publish();
  }

  get size(): number {
    return this.#revocations.size;
  }

  /** Why the revocations are unknown; undefined if they are known. */
  get problem(): string | undefined {
    return this.#rollback ?? this.#revocations.problem;
  }

  get #rollback(): string | undefined {
    const { state, version_seen } = this.#store;
    const { version } = state.document;
    if (version >= version_seen) return undefined;
    return `the revocations were rolled back (version ${version} after ${version_seen}): restore the newest document, or revoke all`;
  }

  floor(subject: string): number {
    if (!isNodeSubject(subject)) this.requireNotRolledBack();
    return this.#revocations.floor(subject);
  }

  isRevoked(capability_id: string): boolean {
    return this.#revocations.isRevoked(capability_id);
  }

  /** Throws while the revocations are unknown. */
  requireNotRolledBack(): void {
    const problem = this.#rollback;
    if (problem !== undefined) throw new RonError('not_ready', problem, { op: 'revocations' });
  }

  /** The epoch of a capability that is issued to a subject now. Waits until services accept it. */
  async epochNow(subject: string, signal: AbortSignal): Promise<number> {
    const epoch = Math.max(sched.wall_ms(), this.floor(subject));
    const early_ms = epoch - CLOCK_SKEW_MS - sched.wall_ms();
    if (early_ms > EARLY_MS_MAX) {
      const why = `the clock was set back ${Math.round(early_ms / 1000)} s behind a revocation of ${subject}`;
      throw new RonError('not_ready', why, { op: 'revocations', retry_after_ms: early_ms });
    }
    if (early_ms > 0) await sleep(early_ms, signal, 'epoch');
    return epoch;
  }

  /**
   * Revokes all capabilities issued so far, to one subject or to all, or one capability. Returns the first valid epoch. The
   * entry, if there is one, becomes durable with the revocation.
   */
  async revoke(target: RevocationTarget, signal: AbortSignal, entryOf?: EntryOf): Promise<number> {
    if (target !== 'all') this.requireNotRolledBack();
    let epoch = 0;
    const { version_seen } = this.#store;
    await this.#store.update(({ document, outbox }) => {
      const next = revoked(document, target, version_seen);
      epoch = next.epoch;
      return { document: next.document, outbox: entryOf === undefined ? outbox : withEntry(outbox, entryOf(epoch)) };
    }, signal);
    this.#publish();
    return epoch;
  }

  #publish(): void {
    const { document } = this.#store.state;
    this.#revocations.apply(document);
    this.#documents.set(document);
  }
}

function revoked(
  before: RevocationDocument,
  target: RevocationTarget,
  version_seen: number,
): { readonly document: RevocationDocument; readonly epoch: number } {
  const wall_ms = sched.wall_ms();
  // At least the time, so that a document that was lost and recreated never reuses a version.
  const version = Math.max(before.version + 1, version_seen + 1, wall_ms);
  const { all, ids } = before;
  if (target === 'all') {
    const epoch = Math.max(floorAt(wall_ms), all + 1);
    return { epoch, document: { version, all: epoch, subjects: {}, ids: {} } };
  }
  if ('capability_id' in target) {
    const next = added(ids, target.capability_id, wall_ms, IDS_MAX, 'capabilities');
    return { epoch: wall_ms, document: { ...before, version, ids: next } };
  }
  const tag = subjectTag(target.subject);
  const epoch = Math.max(floorAt(wall_ms), all + 1, (before.subjects[tag] ?? 0) + 1);
  const subjects = added(before.subjects, tag, epoch, SUBJECTS_MAX, 'subjects');
  return { epoch, document: { version, all, subjects, ids } };
}

/** With one more entry, and without those whose capabilities have all expired. */
function added(
  before: Readonly<Record<string, number>>,
  name: string,
  time_ms: number,
  entries_max: number,
  what: string,
): Readonly<Record<string, number>> {
  const live = Object.entries(before).filter(([, revoked_ms]) => !isObsolete(revoked_ms));
  const next = { ...Object.fromEntries(live), [name]: time_ms };
  if (Object.keys(next).length > entries_max) {
    throw new RonError('storage_full', `${entries_max} ${what} are revoked: revoke all instead`);
  }
  return next;
}

/** A state that is lost when the process exits. */
export function memoryStore(): RevocationStore {
  return {
    state: { document: NO_REVOCATIONS, outbox: EMPTY_OUTBOX },
    version_seen: 0,
    update(change) {
      (this as { state: RevocationState }).state = change(this.state);
      return Promise.resolve();
    },
  };
}

/** The outbox of a store of revocations. */
export function outboxOf(store: RevocationStore): OutboxStore {
  return {
    get outbox() {
      return store.state.outbox;
    },
    updateOutbox: async (change, signal) => {
      await store.update(({ document, outbox }) => ({ document, outbox: change(outbox) }), signal);
    },
  };
}
