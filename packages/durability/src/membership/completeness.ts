/**
 * Whether the volumes of a set have answered completely: the precondition of reclaiming anything, and of "not found".
 *
 * Contract: a volume on the roster that the operator has not given up is away while no readable member has its id. The
 * set is incomplete while a volume is away, and while a readable member has not been told everything, was used apart from
 * the others, or lost records that it cannot name. The answers are made of the state in the step in which they are read.
 * Bound: one cached list of names.
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

  /** The volumes on the roster that are not here, without those that were given up, by the directories of their last open. */
  get away(): readonly string[] {
    const { roster } = this.#set.membership;
    const { changes_total } = this.#set.life;
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
   * Whether a member has to be reconciled now: it is not current, or it is in doubt and every other volume is here and
   * current. Of volumes that are all in doubt, each is compared with all others: no further volume could know more.
   */
  isDue(member: Member): boolean {
    if (!member.isCurrent) return true;
    return member.isInDoubt && this.away.length === 0 && this.#set.members.every(isCurrentOrLost);
  }

  /**
   * Why an object that is not found may still be stored. With fewer volumes away than copies that were acknowledged, one
   * copy would be here, unless volumes were given up before.
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
  if (member.isApart) return 'was used apart from the others';
  if (!member.isCurrent) return 'is catching up';
  if (member.isInDoubt) return 'lost records that it cannot name';
  return undefined;
}
