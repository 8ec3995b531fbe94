/**
 * The volumes of a set, and what becomes of them: taken in, emptied, lost, given up, let go.
 *
 * Promise: a change takes effect in the step in which it is asked for; what is decided about a volume (emptied, given up,
 * let go) is durable when it resolves, and holds after a restart. No volume is emptied when the others could not hold the
 * copies that are wished for; none is let go that may hold the last copy of something, unless it is forced.
 * Bound: the volumes. Cancellation: by the signals given; then a decision may hold or not: ask again.
 */
import { isVolumeId } from '@ron/cas';
import { assert, RonError } from '@ron/kernel';
import { Member, type MemberInit } from './member.ts';
import { Membership } from './membership.ts';
import { Placement } from '../placement/placement.ts';

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
    const ids = new Set(this.#members.map((member) => member.id));
    assert(ids.size === this.#members.length, 'volumes of a set have different ids');
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

  /** By id, or by name. */
  member(key: string): Member {
    const member = this.#members.find((each) => each.id === key) ?? this.#members.find((each) => each.name === key);
    if (member === undefined) throw new RonError('not_found', `there is no volume ${key}`);
    return member;
  }

  /** A new one, one that was away, or one in the place of another. It is told later what it missed. */
  add(init: MemberInit): Member {
    const member = this.#memberOf(init);
    const former = this.#members.find((each) => each.id === member.id);
    if (former?.isReadable === true) {
      throw new RonError('conflict', `it is the same volume as ${former.name} (${member.id})`);
    }
    // Which decisions it has is known once its notes have been read.
    member.isCurrent = false;
    if (this.#membership.roster.draining.includes(member.id)) member.life = 'draining';
    this.#change(member.name, [...this.#members.filter((each) => each !== former), member]);
    return member;
  }

  /** How much it gets, and with whom it fails. */
  reshape(key: string, { weight, domain }: { weight: number; domain: string }): void {
    const member = this.member(key);
    if (member.weight === weight && member.domain === domain) return;
    member.weight = weight;
    member.domain = domain;
    this.#change(member.name, this.#members);
  }

  /** Why the volume cannot be emptied: the others could not hold what is wished for. */
  whyNotDrain(key: string): string | undefined {
    const member = this.member(key);
    if (member.life === 'lost') return `${member.name} is lost: there is nothing that could be moved; remove it`;
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
  async drain(key: string, signal: AbortSignal): Promise<void> {
    const member = this.member(key);
    if (member.life !== 'draining') {
      const problem = this.whyNotDrain(key);
      if (problem !== undefined) throw new RonError('conflict', problem);
      this.beginDrain(key);
    }
    await this.#membership.note('draining', member.id, true, signal);
  }

  /** The same until the next start, whatever is left: the configuration says so, and says so again then. */
  beginDrain(key: string): void {
    const member = this.member(key);
    if (member.life !== 'active') return;
    member.life = 'draining';
    this.#change(member.name, this.#members);
  }

  /** It stays after all. */
  async undrain(key: string, signal: AbortSignal): Promise<void> {
    const member = this.member(key);
    if (member.life === 'draining') {
      member.life = 'active';
      this.#change(member.name, this.#members);
    }
    await this.#membership.note('draining', member.id, false, signal);
  }

  /** Expects nothing of it any more, until it is added again. What it had is repaired from elsewhere. */
  lose(key: string, reason: string): void {
    const member = this.member(key);
    member.lose(reason);
    this.#change(member.name, this.#members);
    this.#onLost?.(member.name, reason);
  }

  /** Notes that the operator gave the volume up, or wants it back. One that is not here is named by its id. */
  async giveUp(key: string, isGivenUp: boolean, signal: AbortSignal): Promise<void> {
    const id = isVolumeId(key) ? key : this.member(key).id;
    await this.#membership.note('lost', id, isGivenUp, signal);
  }

  /** Lets a volume go that is drained or lost; `force` also one that may hold the last copy of something. */
  async remove(key: string, init: { force?: boolean; signal: AbortSignal }): Promise<void> {
    const member = this.member(key);
    const { name } = member;
    const isFree = member.life === 'lost' || (member.life === 'draining' && member.isDrained);
    if (!isFree && init.force !== true) throw new RonError('conflict', `${name} may hold last copies: drain it first`);
    const rest = this.#members.filter((each) => each !== member);
    if (!rest.some((each) => each.isReadable)) {
      throw new RonError('conflict', `${name} is the last volume: what it holds has nowhere else to be`);
    }
    this.#change(member.name, rest);
    await this.#membership.forget(member.id, init.signal);
    await member.volume.close();
  }

  /** One that a write finds gone is lost at once, unless it is the only one: then there is nowhere else to look. */
  #memberOf(init: MemberInit): Member {
    const member: Member = new Member(init, (reason) => {
      // Another member may have its place by now.
      if (this.#members.length > 1 && this.#members.includes(member)) this.lose(member.id, reason);
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
