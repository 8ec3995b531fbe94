/**
 * Whether every volume of a set has answered: the precondition of reclaiming records, and of the answer "not found".
 *
 * Contract: a volume on the roster that was not abandoned is away while no readable member has its id. The set is incomplete
 * while a volume is away, and while a readable member is stale, diverged or unverified. Answers reflect the state in the step in
 * which they are read. Bound: one cached list of names.
 */
import type { Member } from './member.ts';
import type { Roster } from './roster.ts';
import type { VolumeSet } from '../set/volume-set.ts';

export class Completeness {
  readonly #set: VolumeSet;
  #away: readonly string[] = [];
  #roster: Roster | undefined;
  #changes_total = -1;

  constructor(set: VolumeSet) {
    this.#set = set;
  }

  /** The absent volumes on the roster that were not abandoned, by the directories where they were last open. */
  get away(): readonly string[] {
    const { roster } = this.#set.membership;
    const { changes_total } = this.#set.lifecycle;
    if (roster !== this.#roster || changes_total !== this.#changes_total) {
      const here = new Set(this.#set.members.flatMap((member) => (member.isReadable ? [member.id] : [])));
      const away = roster.members.filter((id) => !here.has(id) && !roster.lost.includes(id));
      this.#away = away.map((id) => roster.seen[id]?.dir ?? id);
      this.#roster = roster;
      this.#changes_total = changes_total;
    }
    return this.#away;
  }

  /** Why the set is incomplete, `except` for one member; undefined when it is complete. */
  reason(except?: Member): string | undefined {
    const { members } = this.#set;
    const isFine = (member: Member): boolean => member === except || problemOf(member) === undefined;
    if (this.away.length === 0 && members.every(isFine)) return undefined;
    const problems = members.flatMap((member) => (isFine(member) ? [] : `${member.name} ${problemOf(member)}`));
    return [...this.away.map((name) => `${name} is away`), ...problems].join('; ');
  }

  /**
   * Whether a member has to be reconciled now: it is not current, or it is unverified and every other volume is open and
   * current. If all volumes are unverified, each is compared with all others: no other source is left.
   */
  isDue(member: Member): boolean {
    if (!member.isCurrent) return true;
    return member.isUnverified && this.away.length === 0 && this.#set.members.every(isCurrentOrLost);
  }

  /**
   * Why an object that is not found may still be stored. If fewer volumes are away than copies were acknowledged, one copy
   * would be on an open volume, unless volumes were abandoned before.
   */
  get absenceDoubt(): string | undefined {
    const { away } = this;
    const { membership, write_min } = this.#set;
    if (away.length === 0) return undefined;
    if (away.length < write_min && membership.roster.lost.length === 0) return undefined;
    return isAway(away);
  }
}

export const isAway = (names: readonly string[]): string =>
  `${names.join(', ')} ${names.length === 1 ? 'is' : 'are'} away`;

const isCurrentOrLost = (member: Member): boolean => member.isCurrent || !member.isReadable;

function problemOf(member: Member): string | undefined {
  if (!member.isReadable) return undefined;
  if (member.isDiverged) return 'was used apart from the others';
  if (!member.isCurrent) return 'is catching up';
  if (member.isUnverified) return 'lost records that it cannot name';
  return undefined;
}
