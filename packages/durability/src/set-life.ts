/**
 * The volumes of a set, and what becomes of them: taken in, emptied, lost, given up, let go.
 *
 * Promise: a change takes effect in the step in which it is asked for; what is decided about a volume (emptied, given up,
 * let go) is durable when it resolves, and holds after a restart. No volume is emptied when the others could not hold the
 * copies that are wished for; none is let go that may hold the last copy of something, unless it is forced.
 * Bound: the volumes. Cancellation: by the signals given; then a decision may hold or not: ask again.
 */
import { assert, RonError } from '@ron/kernel';
import { Member, type MemberInit } from './member.ts';
import { Membership } from './membership.ts';
import { Placement } from './placement.ts';

export interface SetLifeInit {
  members: readonly MemberInit[];
  /** As many as there are to be of any record. */
  copies: number;
  /** Told of each volume that is lost. Must not throw. */
  onLost?: (name: string, reason: string) => void;
  signal: AbortSignal;
}

export class SetLife {
  readonly #copies: number;
  readonly #onLost: ((name: string, reason: string) => void) | undefined;
  #members: readonly Member[];
  #placement: Placement<Member>;
  #membership!: Membership;
  #changes_total = 0;
  #lastChange = '';

  private constructor(init: SetLifeInit) {
    this.#copies = init.copies;
    this.#onLost = init.onLost;
    this.#members = init.members.map((each) => this.#memberOf(each));
    this.#placement = this.#place();
    const names = new Set(this.#members.map((member) => member.name));
    assert(names.size === this.#members.length, 'volumes of a set have different names');
  }

  static async open(init: SetLifeInit): Promise<SetLife> {
    const life = new SetLife(init);
    life.#membership = await Membership.open(() => life.#members, init.signal);
    life.#placement = life.#place();
    return life;
  }

  get members(): readonly Member[] {
    return this.#members;
  }

  /** Over the volumes that take records. */
  get placement(): Placement<Member> {
    return this.#placement;
  }

  get membership(): Membership {
    return this.#membership;
  }

  /** How often volumes came, went or changed what they are for. */
  get changes_total(): number {
    return this.#changes_total;
  }

  /** The name of the volume that came, went or changed last. */
  get lastChange(): string {
    return this.#lastChange;
  }

  member(name: string): Member {
    const member = this.#members.find((each) => each.name === name);
    if (member === undefined) throw new RonError('not_found', `there is no volume ${name}`);
    return member;
  }

  /** A new one, one that was away, or one in the place of another. It is told later what it missed. */
  add(init: MemberInit): Member {
    const member = this.#memberOf(init);
    const former = this.#members.find((each) => each.name === member.name);
    if (former?.isReadable === true) throw new RonError('conflict', `there is a volume ${member.name} already`);
    // What it heard and what not is known when it has been asked.
    member.isCurrent = false;
    if (this.#membership.roster.draining.includes(member.name)) member.life = 'draining';
    this.#change(member.name, [...this.#members.filter((each) => each !== former), member]);
    return member;
  }

  /** How much it gets, and with whom it fails. */
  reshape(name: string, { weight, domain }: { weight: number; domain: string }): void {
    const member = this.member(name);
    if (member.weight === weight && member.domain === domain) return;
    member.weight = weight;
    member.domain = domain;
    this.#change(name, this.#members);
  }

  /** Why the volume cannot be emptied: the others could not hold what is wished for. */
  whyNotDrain(name: string): string | undefined {
    const member = this.member(name);
    if (member.life === 'lost') return `${name} is lost: there is nothing that could be moved; remove it`;
    const rest = this.#members.filter((each) => each.life === 'active' && each !== member);
    if (rest.length < this.#copies) {
      return `${this.#copies} copies need ${this.#copies} volumes, ${rest.length} would be left: add one first`;
    }
    const domains = new Set(rest.map((each) => each.domain)).size;
    const wished = Math.min(this.#copies, new Set([...rest, member].map((each) => each.domain)).size);
    if (domains >= wished) return undefined;
    return `${wished} copies lie in ${wished} domains, ${domains} would be left: add a volume in another domain first`;
  }

  /** Gives it nothing more; the planner moves what it has. */
  async drain(name: string, signal: AbortSignal): Promise<void> {
    const member = this.member(name);
    if (member.life !== 'draining') {
      const problem = this.whyNotDrain(name);
      if (problem !== undefined) throw new RonError('conflict', problem);
      this.beginDrain(name);
    }
    await this.#membership.note('draining', name, true, signal);
  }

  /** The same until the next start, whatever is left: the configuration says so, and says so again then. */
  beginDrain(name: string): void {
    const member = this.member(name);
    if (member.life !== 'active') return;
    member.life = 'draining';
    this.#change(name, this.#members);
  }

  /** It stays after all. */
  async undrain(name: string, signal: AbortSignal): Promise<void> {
    const member = this.member(name);
    if (member.life === 'draining') {
      member.life = 'active';
      this.#change(name, this.#members);
    }
    await this.#membership.note('draining', name, false, signal);
  }

  /** Expects nothing of it any more, until it is added again. What it had is repaired from elsewhere. */
  lose(name: string, reason: string): void {
    this.member(name).lose(reason);
    this.#change(name, this.#members);
    this.#onLost?.(name, reason);
  }

  /** Notes that somebody lost it on purpose, or wants it back. */
  giveUp(name: string, isGivenUp: boolean, signal: AbortSignal): Promise<void> {
    return this.#membership.note('lost', name, isGivenUp, signal);
  }

  /** Lets a volume go that is drained or lost; `force` also one that may hold the last copy of something. */
  async remove(name: string, init: { force?: boolean; signal: AbortSignal }): Promise<void> {
    const member = this.member(name);
    const isFree = member.life === 'lost' || (member.life === 'draining' && member.isDrained);
    if (!isFree && init.force !== true) throw new RonError('conflict', `${name} may hold last copies: drain it first`);
    const rest = this.#members.filter((each) => each !== member);
    if (!rest.some((each) => each.isReadable)) {
      throw new RonError('conflict', `${name} is the last volume: what it holds has nowhere else to be`);
    }
    this.#change(name, rest);
    await this.#membership.forget(name, init.signal);
    await member.volume.close();
  }

  /** One that a write finds gone is lost at once, unless it is the only one: then there is nowhere else to look. */
  #memberOf(init: MemberInit): Member {
    const member: Member = new Member(init, (reason) => {
      // Its name may be another one's by now.
      if (this.#members.length > 1 && this.#members.includes(member)) this.lose(member.name, reason);
    });
    return member;
  }

  #change(name: string, members: readonly Member[]): void {
    this.#changes_total += 1;
    this.#lastChange = name;
    this.#members = members;
    this.#placement = this.#place();
    this.doubt();
  }

  /** Something changed: whether a volume is drained has to be found out anew. */
  doubt(): void {
    for (const member of this.#members) member.isDrained = false;
  }

  #place(): Placement<Member> {
    return new Placement(this.#members.filter((member) => member.life === 'active'));
  }
}
