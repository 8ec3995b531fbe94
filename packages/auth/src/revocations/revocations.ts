/**
 * Revocations as a document: for each revoked subject, and for all subjects, the time before which issued capabilities
 * are invalid. An epoch is a time (Unix ms), so issuers need no knowledge of each other's revocations.
 *
 * Contract: floors and version only rise: a late, repeated or older document undoes nothing. Subjects are named by a
 * hash, so the document does not reveal them. A check that begins after `apply` returned sees its revocations.
 * Bound: `SUBJECTS_MAX` subjects in a document; twice as many are stored.
 * Overflow: the subjects of the newest document are kept; an older document only raises floors of known subjects.
 */
import { hash } from 'node:crypto';
import { Cache } from '@ron/cache';
import { RonError, touch } from '@ron/kernel';
import type { RevocationEpochs } from './epochs.ts';

export interface RevocationDocument {
  /** Changes with every revocation. */
  readonly version: number;
  /** Capabilities of any subject that were issued before it are refused. */
  readonly all: number;
  /** By `subjectTag`. */
  readonly subjects: Readonly<Record<string, number>>;
}

export const NO_REVOCATIONS: RevocationDocument = { version: 0, all: 0, subjects: {} };
export const SUBJECTS_MAX = 10_000;
const REMEMBERED_MAX = 2 * SUBJECTS_MAX;
const TAG_CHARS = 22;
const TAG = /^[A-Za-z0-9_-]{22}$/;
const TAGS_REMEMBERED = 4096;

/** The name of a subject in the document: 132 bits of its SHA-256. */
export function subjectTag(subject: string): string {
  return hash('sha256', `ron/subject/v1\n${subject}`, 'base64url').slice(0, TAG_CHARS);
}

export class Revocations implements RevocationEpochs {
  #floors = new Map<string, number>();
  #floorOfAll = 0;
  #version = 0;
  /** Every request looks up the floor of its subject, and hashing costs more than the rest of the check. */
  readonly #tags = new Cache<string>({ entries_max: TAGS_REMEMBERED });

  /** The version of the newest document. */
  get version(): number {
    return this.#version;
  }

  get size(): number {
    return this.#floors.size;
  }

  floor(subject: string): number {
    touch(this);
    if (this.#floors.size === 0) return this.#floorOfAll;
    return Math.max(this.#floorOfAll, this.#floors.get(this.#tagOf(subject)) ?? 0);
  }

  apply(document: RevocationDocument): void {
    touch(this);
    const { version, all, subjects } = requireDocument(document);
    this.#floorOfAll = Math.max(this.#floorOfAll, all);
    const entries = Object.entries(subjects);
    const hasRoom = this.#floors.size + entries.length <= REMEMBERED_MAX;
    const isNewest = version >= this.#version;
    const floors = new Map(hasRoom || !isNewest ? this.#floors : []);
    for (const [tag, epoch] of entries) {
      if (hasRoom || isNewest || floors.has(tag)) floors.set(tag, Math.max(epoch, this.#floors.get(tag) ?? 0));
    }
    for (const [tag, epoch] of floors) if (epoch <= this.#floorOfAll) floors.delete(tag);
    this.#floors = floors;
    this.#version = Math.max(version, this.#version);
  }

  /** All known revocations, for the next start. */
  document(): RevocationDocument {
    return { version: this.#version, all: this.#floorOfAll, subjects: Object.fromEntries(this.#floors) };
  }

  #tagOf(subject: string): string {
    const known = this.#tags.get(subject);
    if (known !== undefined) return known;
    const tag = subjectTag(subject);
    this.#tags.set(subject, tag, 0);
    return tag;
  }
}

/** Returns the document, or throws if it is malformed: it may come from another process. */
export function requireDocument(value: unknown): RevocationDocument {
  const { version, all, subjects } = (value ?? {}) as Partial<RevocationDocument>;
  const isEpoch = (epoch: unknown): boolean => Number.isSafeInteger(epoch) && (epoch as number) >= 0;
  if (!isEpoch(version) || !isEpoch(all) || typeof subjects !== 'object' || subjects === null) throw malformed();
  const entries = Object.entries(subjects);
  if (entries.length > REMEMBERED_MAX) throw malformed();
  if (!entries.every(([tag, epoch]) => TAG.test(tag) && isEpoch(epoch))) throw malformed();
  return value as RevocationDocument;
}

function malformed(): RonError {
  return new RonError('integrity', 'malformed revocation document');
}
