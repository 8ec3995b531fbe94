/**
 * Records operations with the audience root in the audit log.
 *
 * Contract: each operation leaves one entry, or is counted in a gap if the log cannot take it; while the log is damaged it leaves none. Operations that kms makes
 * before its log is open are held and recorded when `open` is called. Bound: `EARLY_MAX` held operations.
 */
import { AUDIENCE_ROOT, AUDIENCE_TENANT, serviceSubject } from '@ron/auth';
import { assert } from '@ron/kernel';
import type { Auditor, Caller } from '../audit/auditor.ts';
import { inputOf } from '../audit/event.ts';
import { formatKid, parseKid } from '../keys/kid.ts';
import type { RootEvent } from './audience-keys.ts';

/** More than a start creates and derives. */
const EARLY_MAX = 64;

export class RootEntries {
  #auditor: Auditor | undefined;
  readonly #early: RootEvent<Caller>[] = [];

  record(event: RootEvent<Caller>): void {
    if (this.#auditor !== undefined) return this.#note(this.#auditor, event);
    assert(this.#early.length < EARLY_MAX, 'a start makes few operations with the audience root');
    this.#early.push(event);
  }

  open(auditor: Auditor): void {
    this.#auditor = auditor;
    for (const event of this.#early.splice(0)) this.#note(auditor, event);
  }

  #note(auditor: Auditor, { op, version, label, caller }: RootEvent<Caller>): void {
    const kid = formatKid(AUDIENCE_ROOT, version);
    // The label is public, and its hash tells which audience was derived.
    const input = label === undefined ? {} : inputOf({ message: Buffer.from(label) });
    auditor.noteSuccess(
      caller ?? KMS,
      { op, kid, ...input },
      { kid, record: { ...parseKid(kid), tenant: AUDIENCE_TENANT } },
    );
  }
}

/** Operations of kms itself. */
const KMS: Omit<Caller, 'deadline'> = { actor: serviceSubject('kms'), subject: serviceSubject('kms'), chain: [] };
