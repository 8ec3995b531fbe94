/**
 * What is revoked: the one place where it is decided and kept.
 *
 * Promise: `revoke` resolves when the revocation is on disk and in force here, and those who wait for news have been
 * told. An epoch is the moment of the revocation, at least one above every earlier one of the subject, so a clock that
 * goes back undoes nothing; what is issued afterwards has an epoch that is good.
 *   A document that is older than one that was kept before was put in its place by somebody: who was revoked since is not
 * known. Then nothing that was issued to others than the node itself is good, nothing is told, and only `all` can be
 * revoked, which puts an end to it.
 * Bound: `SUBJECTS_MAX` subjects; those whose capabilities have all expired are forgotten. Overflow: `storage_full`,
 * then revoke all. Cancellation: a revocation whose signal aborts before its write began was not made.
 */
import {
  CAPABILITY_LIMITS,
  isNodeSubject,
  NO_REVOCATIONS,
  Revocations,
  SUBJECTS_MAX,
  subjectTag,
  type RevocationDocument,
  type RevocationEpochs,
} from '@ron/auth';
import { RonError, sched, type Watch } from '@ron/kernel';

/** Where the document lies: a sealed file, or memory. */
export interface RevocationStore {
  readonly value: RevocationDocument;
  /** The version of the newest document that was ever kept. */
  readonly version_seen: number;
  update(change: (value: RevocationDocument) => RevocationDocument, signal: AbortSignal): Promise<unknown>;
}

export class RevocationRegistry implements RevocationEpochs {
  readonly #store: RevocationStore;
  readonly #news: Watch<RevocationDocument>;
  readonly #revocations = new Revocations();

  constructor(store: RevocationStore, news: Watch<RevocationDocument>) {
    this.#store = store;
    this.#news = news;
    this.#tell();
  }

  get size(): number {
    return this.#revocations.size;
  }

  /** Why it is not known what is revoked; undefined when it is. */
  get problem(): string | undefined {
    const { value, version_seen } = this.#store;
    if (value.version >= version_seen) return undefined;
    return `an older document of revocations was put in place (version ${value.version} after ${version_seen}): put back the newest, or revoke all`;
  }

  floor(subject: string): number {
    if (!isNodeSubject(subject)) this.requireWhole();
    return this.#revocations.floor(subject);
  }

  /** Refuses while it is not known what is revoked. */
  requireWhole(): void {
    const { problem } = this;
    if (problem !== undefined) throw new RonError('not_ready', problem, { op: 'revocations' });
  }

  /** The epoch of what is issued to a subject now. */
  epochNow(subject: string): number {
    return Math.max(sched.wall_ms(), this.floor(subject));
  }

  /** Refuses what was issued until now, to one subject or to all; the epoch from which on it is good again. */
  async revoke(subject: string | undefined, signal: AbortSignal): Promise<number> {
    if (subject !== undefined) this.requireWhole();
    let epoch = 0;
    const { version_seen } = this.#store;
    await this.#store.update((before) => {
      const tag = subject === undefined ? undefined : subjectTag(subject);
      epoch = Math.max(sched.wall_ms(), before.all, (tag === undefined ? 0 : before.subjects[tag]) ?? 0) + 1;
      return revoked(before, tag, epoch, version_seen);
    }, signal);
    this.#tell();
    return epoch;
  }

  #tell(): void {
    this.#revocations.apply(this.#store.value);
    this.#news.set(this.#store.value);
  }
}

function revoked(
  before: RevocationDocument,
  tag: string | undefined,
  epoch: number,
  version_seen: number,
): RevocationDocument {
  // A time, so that a document which was lost and begun anew never has the number of another.
  const version = Math.max(before.version + 1, version_seen + 1, sched.wall_ms());
  if (tag === undefined) return { version, all: epoch, subjects: {} };
  const long_ago = sched.wall_ms() - CAPABILITY_LIMITS.ttl_ms_max;
  const live = Object.entries(before.subjects).filter(([, floor]) => floor > long_ago);
  const subjects = { ...Object.fromEntries(live), [tag]: epoch };
  if (Object.keys(subjects).length > SUBJECTS_MAX) {
    throw new RonError('storage_full', `${SUBJECTS_MAX} subjects are revoked: revoke all instead`);
  }
  return { version, all: before.all, subjects };
}

/** A document that lives as long as the process. */
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
