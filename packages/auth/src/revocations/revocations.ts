/**
 * Revocations as a document: for each revoked subject, and for all subjects, the time before which issued capabilities
 * are invalid; and the ids of single revoked capabilities. An epoch is a time (Unix ms), so issuers need no knowledge of
 * each other's revocations.
 *
 * Contract: floors, ids and version only rise: a late, repeated or older document undoes nothing. Subjects are named by a
 * hash, so the document does not reveal them. A check that begins after `apply` returned sees its revocations.
 *   A document with a time that no clock of the node can have written is not accepted (`requireCurrent`). If the
 * clock is set back later, floors lie in the future, and a new capability looks like a revoked one.
 * Then `floor` throws `not_ready` for capabilities that passport issued, until the clock has reached them. The node's own
 * capabilities stay usable; floors from the future do not apply to them, revoked ids do.
 * Bound: `SUBJECTS_MAX` subjects and `IDS_MAX` ids in a document; twice as many are stored. An id is dropped when every
 * capability with it has expired.
 * Overflow: the entries of the newest document are kept; an older document only raises known entries.
 */
import { hash } from 'node:crypto';
import { Cache } from '@ron/cache';
import { RonError, sched, touch } from '@ron/kernel';
import { CAPABILITY_LIMITS } from '../capability/limits.ts';
import { isNodeSubject } from '../capability/subjects.ts';
import { CLOCK_SKEW_MS, isFloorFromFuture, type RevocationEpochs } from './epochs.ts';

export interface RevocationDocument {
  /** Changes with every revocation. */
  readonly version: number;
  /** Capabilities of any subject that were issued before it are refused. */
  readonly all: number;
  /** By `subjectTag`. */
  readonly subjects: Readonly<Record<string, number>>;
  /** The times at which single capabilities were revoked, by id. */
  readonly ids: Readonly<Record<string, number>>;
}

export const NO_REVOCATIONS: RevocationDocument = { version: 0, all: 0, subjects: {}, ids: {} };
export const SUBJECTS_MAX = 10_000;
export const IDS_MAX = 10_000;
const TAG_CHARS = 22;
/** Tags and ids have the same form. */
const NAME = /^[A-Za-z0-9_-]{22}$/;
const TAGS_REMEMBERED = 4096;
const RETRY_AFTER_MS = 1000;

/** The name of a subject in the document: 132 bits of its SHA-256. */
export function subjectTag(subject: string): string {
  return hash('sha256', `ron/subject/v1\n${subject}`, 'base64url').slice(0, TAG_CHARS);
}

export class Revocations implements RevocationEpochs {
  #floors: ReadonlyMap<string, number> = new Map();
  #ids: ReadonlyMap<string, number> = new Map();
  #floorOfAll = 0;
  #version = 0;
  /** The latest time in any document. */
  #latest_ms = 0;
  /** Every request looks up the floor of its subject, and hashing costs more than the rest of the check. */
  readonly #tags = new Cache<string>({ entries_max: TAGS_REMEMBERED });

  /** The version of the newest document. */
  get version(): number {
    return this.#version;
  }

  /** Revoked subjects. */
  get size(): number {
    return this.#floors.size;
  }

  /** Revoked capabilities. */
  get ids(): number {
    return this.#ids.size;
  }

  /** Why capabilities of passport are refused: the clock was set back behind a revocation. */
  get problem(): string | undefined {
    const wall_ms = sched.wall_ms();
    if (!isFloorFromFuture(this.#latest_ms, wall_ms)) return undefined;
    return futureProblem(this.#latest_ms - wall_ms);
  }

  floor(subject: string): number {
    touch(this);
    const wall_ms = sched.wall_ms();
    const own = this.#floors.size === 0 ? 0 : (this.#floors.get(this.#tagOf(subject)) ?? 0);
    if (!isFloorFromFuture(this.#latest_ms, wall_ms)) return Math.max(this.#floorOfAll, own);
    if (!isNodeSubject(subject)) throw notReady(futureProblem(this.#latest_ms - wall_ms));
    return Math.max(0, ...[this.#floorOfAll, own].filter((floor) => !isFloorFromFuture(floor, wall_ms)));
  }

  isRevoked(capability_id: string): boolean {
    touch(this);
    return this.#ids.size > 0 && this.#ids.has(capability_id);
  }

  apply(document: RevocationDocument): void {
    touch(this);
    const checked = requireDocument(document);
    const { version, all, subjects, ids } = checked;
    const isNewest = version >= this.#version;
    this.#floorOfAll = Math.max(this.#floorOfAll, all);
    const floors = merged(this.#floors, Object.entries(subjects), isNewest, 2 * SUBJECTS_MAX);
    for (const [tag, epoch] of floors) if (epoch <= this.#floorOfAll) floors.delete(tag);
    this.#floors = floors;
    const revoked = merged(this.#ids, Object.entries(ids), isNewest, 2 * IDS_MAX);
    for (const [id, time_ms] of revoked) if (isObsolete(time_ms)) revoked.delete(id);
    this.#ids = revoked;
    this.#version = Math.max(version, this.#version);
    this.#latest_ms = Math.max(this.#latest_ms, latestOf(checked));
  }

  /** All known revocations, for the next start. */
  document(): RevocationDocument {
    const [subjects, ids] = [Object.fromEntries(this.#floors), Object.fromEntries(this.#ids)];
    return { version: this.#version, all: this.#floorOfAll, subjects, ids };
  }

  #tagOf(subject: string): string {
    const known = this.#tags.get(subject);
    if (known !== undefined) return known;
    const tag = subjectTag(subject);
    this.#tags.set(subject, tag, 0);
    return tag;
  }
}

/** Each entry at its highest value. Without room, the entries of the newest document replace the known ones. */
function merged(
  known: ReadonlyMap<string, number>,
  entries: readonly (readonly [string, number])[],
  isNewest: boolean,
  entries_max: number,
): Map<string, number> {
  const hasRoom = known.size + entries.length <= entries_max;
  const next = new Map(hasRoom || !isNewest ? known : []);
  for (const [name, time_ms] of entries) {
    if (hasRoom || isNewest || next.has(name)) next.set(name, Math.max(time_ms, known.get(name) ?? 0));
  }
  return next;
}

/** Whether every capability that was issued before this time has expired. */
export function isObsolete(time_ms: number): boolean {
  return time_ms + CAPABILITY_LIMITS.ttl_ms_max + CLOCK_SKEW_MS < sched.wall_ms();
}

/** Returns the document, or throws if it is malformed: it may come from another process, or from an earlier version. */
export function requireDocument(value: unknown): RevocationDocument {
  const { version, all, subjects, ids = {} } = (value ?? {}) as Partial<RevocationDocument>;
  if (!isTime(version) || !isTime(all)) throw malformed();
  return { version, all, subjects: times(subjects, 2 * SUBJECTS_MAX), ids: times(ids, 2 * IDS_MAX) };
}

/** Throws if a time in the document is from the future: it would refuse valid capabilities until then. */
export function requireCurrent(document: RevocationDocument): void {
  const wall_ms = sched.wall_ms();
  const latest_ms = latestOf(document);
  if (isFloorFromFuture(latest_ms, wall_ms)) throw new RonError('integrity', futureProblem(latest_ms - wall_ms));
}

function latestOf({ version, all, subjects, ids }: RevocationDocument): number {
  let latest_ms = Math.max(version, all);
  for (const entries of [subjects, ids]) {
    for (const time_ms of Object.values(entries)) latest_ms = Math.max(latest_ms, time_ms);
  }
  return latest_ms;
}

const isTime = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

function times(value: unknown, entries_max: number): Readonly<Record<string, number>> {
  if (typeof value !== 'object' || value === null) throw malformed();
  const entries = Object.entries(value);
  if (entries.length > entries_max) throw malformed();
  if (!entries.every(([name, time_ms]) => NAME.test(name) && isTime(time_ms))) throw malformed();
  return value as Record<string, number>;
}

function futureProblem(ahead_ms: number): string {
  return `revocations are ${Math.round(ahead_ms / 1000)} s in the future: set the clock; capabilities of passport are refused until then`;
}

function notReady(message: string): RonError {
  return new RonError('not_ready', message, { op: 'revocations', retry_after_ms: RETRY_AFTER_MS });
}

function malformed(): RonError {
  return new RonError('integrity', 'malformed revocation document');
}
