/**
 * Changes the volumes of a set: adds, drains, loses, abandons and removes them.
 *
 * Contract: a change takes effect in the step in which it is requested. Decisions (drain, abandon, remove) are durable once
 * they resolve, and hold after a restart. A volume is not drained while the others could not hold the configured copies. A
 * volume that may hold the last copy of a record is not removed, unless it is forced.
 * Bound: the volumes. Cancellation: by the signals given; a cancelled decision may hold or not, so repeat it.
 */
import { isVolumeId } from '@ron/cas';
import { assert, RonError } from '@ron/kernel';
import { Member, type MemberInit } from '../membership/member.ts';
import { Membership } from '../membership/membership.ts';
import { Placement } from '../placement/placement.ts';

export interface SetLifecycleInit {
  members: readonly MemberInit[];
  /** The most copies that any record needs. */
  copies: number;
  /** Called for each lost volume. Must not throw. */
  onLost?: (name: string, reason: string) => void;
  signal: AbortSignal;
}

export class SetLifecycle {
  readonly #copies: number;
  readonly #onLost: ((name: string, reason: string) => void) | undefined;
  #members: readonly Member[];
  #placement: Placement<Member>;
  #membership!: Membership;
  #changes_total = 0;
  #lastChange = '';

  private constructor(init: SetLifecycleInit) {
    this.#copies = init.copies;
    this.#onLost = init.onLost;
    this.#members = init.members.map((each) => this.#memberOf(each));
    for (const [index, { duty = 'active' }] of init.members.entries()) this.#members[index]!.join(duty);
    this.#placement = this.#place();
    const ids = new Set(this.#members.map((member) => member.id));
    assert(ids.size === this.#members.length, 'volumes of a set have different ids');
  }

  static async open(init: SetLifecycleInit): Promise<SetLifecycle> {
    const lifecycle = new SetLifecycle(init);
    lifecycle.#membership = await Membership.open(() => lifecycle.#members, init.signal);
    lifecycle.#placement = lifecycle.#place();
    return lifecycle;
  }

  get members(): readonly Member[] {
    return this.#members;
  }

  /** Over the active volumes. */
  get placement(): Placement<Member> {
    return this.#placement;
  }

  get membership(): Membership {
    return this.#membership;
  }

  /** Counts volumes that were added, removed, lost or given another duty. */
  get changes_total(): number {
    return this.#changes_total;
  }

  /** The name of the volume that changed last. */
  get lastChange(): string {
    return this.#lastChange;
  }

  /** By id, or by name. */
  member(key: string): Member {
    const member = this.#members.find((each) => each.id === key) ?? this.#members.find((each) => each.name === key);
    if (member === undefined) throw new RonError('not_found', `there is no volume ${key}`);
    return member;
  }

  /** Adds a new volume, or one that was absent. Reconciliation brings it the decisions that it missed. */
  add(init: MemberInit): Member {
    const member = this.#memberOf(init);
    const former = this.#members.find((each) => each.id === member.id);
    if (former?.isReadable === true) {
      throw new RonError('conflict', `it is the same volume as ${former.name} (${member.id})`);
    }
    const isDraining = this.#membership.roster.draining.includes(member.id);
    if (!member.join(isDraining ? 'draining' : (init.duty ?? 'active'))) {
      throw new RonError('conflict', 'it was abandoned or removed while it was opened');
    }
    this.#change(member.name, [...this.#members.filter((each) => each !== former), member]);
    return member;
  }

  /** Changes its share of the records and its failure domain. */
  reshape(key: string, { weight, domain }: { weight: number; domain: string }): void {
    const member = this.member(key);
    if (member.weight === weight && member.domain === domain) return;
    member.weight = weight;
    member.domain = domain;
    this.#change(member.name, this.#members);
  }

  /** Why the volume cannot be drained: the others could not hold the configured copies. */
  whyNotDrain(key: string): string | undefined {
    const member = this.member(key);
    if (!member.isReadable) return `${member.name} is lost: its records cannot be moved; remove it`;
    const rest = this.#members.filter((each) => each.isActive && each !== member);
    if (rest.length < this.#copies) {
      return `${this.#copies} copies need ${this.#copies} volumes, ${rest.length} would be left: add one first`;
    }
    const domains = new Set(rest.map((each) => each.domain)).size;
    const needed = Math.min(this.#copies, new Set([...rest, member].map((each) => each.domain)).size);
    if (domains >= needed) return undefined;
    return `${needed} copies need ${needed} domains, ${domains} would be left: add a volume in another domain first`;
  }

  /** Sends it no new records; the planner moves its records to other volumes. */
  async drain(key: string, signal: AbortSignal): Promise<void> {
    const member = this.member(key);
    if (!member.isDraining) {
      const problem = this.whyNotDrain(key);
      if (problem !== undefined) throw new RonError('conflict', problem);
      this.beginDrain(key);
    }
    await this.#membership.note('draining', member.id, true, signal);
  }

  /** Drains it until the next start, without a check of the remaining volumes: for volumes that the configuration drains. */
  beginDrain(key: string): void {
    const member = this.member(key);
    if (member.apply({ type: 'drain' })) this.#change(member.name, this.#members);
  }

  /** Cancels a drain. */
  async undrain(key: string, signal: AbortSignal): Promise<void> {
    const member = this.member(key);
    if (member.apply({ type: 'undrain' })) this.#change(member.name, this.#members);
    await this.#membership.note('draining', member.id, false, signal);
  }

  /** Stops using it until it is added again. Its records are repaired from other volumes. */
  lose(key: string, reason: string): void {
    const member = this.member(key);
    member.apply({ type: 'lose', reason });
    this.#change(member.name, this.#members);
    this.#onLost?.(member.name, reason);
  }

  /** Notes on the roster that the operator abandoned or restored the volume. An absent volume is named by its id. */
  async setAbandoned(key: string, isAbandoned: boolean, signal: AbortSignal): Promise<void> {
    const id = isVolumeId(key) ? key : this.member(key).id;
    await this.#membership.note('lost', id, isAbandoned, signal);
  }

  /** Removes a drained or lost volume; with `force` also one that may hold the last copy of a record. */
  async remove(key: string, init: { force?: boolean; signal: AbortSignal }): Promise<void> {
    const member = this.member(key);
    const { name } = member;
    const isFree = member.status === 'lost' || member.status === 'drained';
    if (!isFree && init.force !== true) throw new RonError('conflict', `${name} may hold last copies: drain it first`);
    const rest = this.#members.filter((each) => each !== member);
    if (!rest.some((each) => each.isReadable)) {
      throw new RonError('conflict', `${name} is the last volume: its records are stored nowhere else`);
    }
    this.#change(member.name, rest);
    await this.#membership.forget(member.id, init.signal);
    await member.volume.close();
    if (member.isReadable) member.lifecycle.apply({ type: 'removed' });
  }

  /** A volume whose write finds its directory gone is lost at once, unless it is the only one. */
  #memberOf(init: MemberInit): Member {
    const member: Member = new Member(init, (reason) => {
      // Another member may have replaced it by now.
      if (this.#members.length > 1 && this.#members.includes(member)) this.lose(member.id, reason);
    });
    return member;
  }

  #change(name: string, members: readonly Member[]): void {
    this.#changes_total += 1;
    this.#lastChange = name;
    this.#members = members;
    this.#placement = this.#place();
    this.recheckDrained();
  }

  /** Withdraws every `drained`: after a change, a new plan has to show that the records are stored elsewhere. */
  recheckDrained(): void {
    for (const member of this.#members) member.apply({ type: 'recheck' });
  }

  #place(): Placement<Member> {
    return new Placement(this.#members.filter((member) => member.isActive));
  }
}
