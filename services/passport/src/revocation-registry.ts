/**
 * The registry of revocations, which decides and stores them.
 *
 * Contract: `revoke` resolves when the revocation is on disk and in force, and waiting polls have been notified. An epoch is
 * the time of the revocation, at least one above every earlier epoch of the subject, so a clock that goes backwards undoes
 * nothing; capabilities issued afterwards have a valid epoch.
 *   If the stored document is older than one that was stored before, it was rolled back, and later revocations are unknown.
 * Then only capabilities of the node itself are valid, no document is published, and only `all` can be revoked, which
 * resolves the problem.
 * Bound: `SUBJECTS_MAX` subjects; those whose capabilities have all expired are removed. Overflow: `storage_full`, then
 * revoke all. Cancellation: a revocation whose signal aborts before its write begins is not made.
 */
import {
  CAPABILITY_LIMITS,
  floorAt,
  isNodeSubject,
  NO_REVOCATIONS,
  Revocations,
  SUBJECTS_MAX,
  subjectTag,
  type RevocationDocument,
  type RevocationEpochs,
} from '@ron/auth';
import { RonError, sched, type Watch } from '@ron/kernel';

/** Stores the document: a sealed file, or memory. */
export interface RevocationStore {
  readonly value: RevocationDocument;
  /** The version of the newest document that was ever stored. */
  readonly version_seen: number;
  update(change: (value: RevocationDocument) => RevocationDocument, signal: AbortSignal): Promise<unknown>;
}

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
    const { value, version_seen } = this.#store;
    if (value.version >= version_seen) return undefined;
    return `the revocations were rolled back (version ${value.version} after ${version_seen}): restore the newest document, or revoke all`;
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
    const { problem } = this;
    if (problem !== undefined) throw new RonError('not_ready', problem, { op: 'revocations' });
  }

  /** The epoch of a capability that is issued to a subject now. */
  epochNow(subject: string): number {
    return Math.max(sched.wall_ms(), this.floor(subject));
  }

  /** Revokes all capabilities issued so far, to one subject or to all. Returns the first valid epoch. */
  async revoke(subject: string | undefined, signal: AbortSignal): Promise<number> {
    if (subject !== undefined) this.requireNotRolledBack();
    let epoch = 0;
    const { version_seen } = this.#store;
    await this.#store.update((before) => {
      const tag = subject === undefined ? undefined : subjectTag(subject);
      const earlier = Math.max(before.all, (tag === undefined ? 0 : before.subjects[tag]) ?? 0);
      epoch = Math.max(floorAt(sched.wall_ms()), earlier + 1);
      return revoked(before, tag, epoch, version_seen);
    }, signal);
    this.#publish();
    return epoch;
  }

  #publish(): void {
    this.#revocations.apply(this.#store.value);
    this.#documents.set(this.#store.value);
  }
}

function revoked(
  before: RevocationDocument,
  tag: string | undefined,
  epoch: number,
  version_seen: number,
): RevocationDocument {
  // At least the time, so that a document that was lost and recreated never reuses a version.
  const version = Math.max(before.version + 1, version_seen + 1, sched.wall_ms());
  if (tag === undefined) return { version, all: epoch, subjects: {}, ids: {} };
  const long_ago = sched.wall_ms() - CAPABILITY_LIMITS.ttl_ms_max;
  const live = Object.entries(before.subjects).filter(([, floor]) => floor > long_ago);
  const subjects = { ...Object.fromEntries(live), [tag]: epoch };
  if (Object.keys(subjects).length > SUBJECTS_MAX) {
    throw new RonError('storage_full', `${SUBJECTS_MAX} subjects are revoked: revoke all instead`);
  }
  return { version, all: before.all, subjects, ids: before.ids };
}

/** A document that is lost when the process exits. */
export function memoryStore(): RevocationStore {
  return {
    value: NO_REVOCATIONS,
    version_seen: 0,
    update(change) {
      (this as { value: RevocationDocument }).value = change(this.value);
      return Promise.resolve();
    },
  };
}
