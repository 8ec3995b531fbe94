/**
 * The roster of a set: which volumes belong to it, the decisions about each volume, and which volumes are current.
 *
 * Contract: a removal or a pin is acknowledged once every current volume has it. A volume that could not take it is struck off
 * the list of current volumes first, durably, on the remaining ones: it is stale until it has been reconciled, even after a
 * restart. With each decision a volume notes the decision's number, and the roster keeps the last epoch of each volume: an older
 * copy of a volume has a lower number or a lower epoch, and is stale too. Decisions about volumes (draining, lost) hold after a
 * restart. Of two rosters the one with the higher number counts; a volume whose roster is not an ancestor of it has diverged.
 * Volumes are identified by their ids. Changes take effect in the step in which they are made, and are written in that order.
 * Bound: two small notes on each volume. Cancellation: by the signal; a cancelled change may hold or not.
 */
import type { NewRecord } from '@ron/cas';
import { sched } from '@ron/kernel';
import { shortOf, writeCopies } from '../placement/copies.ts';
import type { Member } from './member.ts';
import {
  decisionNote,
  isOldCopy,
  isSame,
  readKnown,
  rosterNote,
  rosterOf,
  type Known,
  type Lists,
  type Roster,
} from './roster.ts';

const LIST_ID_BYTES = 6;
/** How many ancestors of a roster are kept. */
const PAST_MAX = 64;
/** How long a volume may take to write a new roster once another one has it. */
const LAG_MS = 1000;

const newId = (): string => Buffer.from(sched.randomBytes(LIST_ID_BYTES)).toString('hex');
const without = (list: readonly string[], ids: readonly string[]): string[] => list.filter((id) => !ids.includes(id));
const recognize = (member: Member): boolean =>
  member.apply({ type: 'recognize', isVerified: member.volume.isDoubtful !== true });
const withId = (list: readonly string[], id: string): string[] => [...without(list, [id]), id];

export class Membership {
  readonly #members: () => readonly Member[];
  #roster: Roster;
  #decision: number;
  /** Decisions of this process, including those under way. */
  #decisions_total = 0;
  /** The number of the last roster that every current volume has. */
  #published: number;
  /** The number of the last roster that each volume has written. */
  readonly #known = new WeakMap<Member, number>();

  private constructor(members: () => readonly Member[], roster: Roster, decision: number) {
    this.#members = members;
    this.#roster = roster;
    this.#decision = decision;
    this.#published = roster.number;
  }

  /** Reads the notes. Volumes without the latest roster, with fewer decisions or an older epoch are stale. */
  static async open(members: () => readonly Member[], signal: AbortSignal): Promise<Membership> {
    const known = new Map<string, Known>();
    for (const { id, volume } of members()) known.set(id, await readKnown(volume, signal));
    const latest = rosterOf(known.values());
    if (latest === undefined) return await Membership.#first(members, signal);
    const isOfLatest = ({ id }: Member): boolean => {
      const { roster } = known.get(id)!;
      return roster !== undefined && isSame(roster, latest) && latest.current.includes(id);
    };
    const decision = Math.max(...members().map((member) => (isOfLatest(member) ? known.get(member.id)!.decision : 0)));
    for (const member of members()) {
      if (isOfLatest(member) && known.get(member.id)!.decision === decision) recognize(member);
      if (latest.draining.includes(member.id)) member.apply({ type: 'drain' });
    }
    const membership = new Membership(members, latest, decision);
    await membership.#strikeUnreliable(signal);
    await membership.#writeSeen(signal);
    return membership;
  }

  /** Volumes that were never in a set are all current. A volume that cannot write the note gets it later. */
  static async #first(members: () => readonly Member[], signal: AbortSignal): Promise<Membership> {
    const ids = members().map((member) => member.id);
    const lists = { members: ids, current: ids, draining: [], lost: [] };
    const membership = new Membership(members, { number: 1, id: newId(), past: [], ...lists, seen: {} }, 0);
    for (const member of members()) recognize(member);
    membership.#refreshSeen();
    await membership.#write(members(), signal);
    return membership;
  }

  /** Updates the directories and epochs of the roster. False when nothing changed. */
  #refreshSeen(): boolean {
    const { seen } = this.#roster;
    const now = this.#members().flatMap(({ id, name, volume: { epoch }, isReadable }) =>
      isReadable && epoch !== undefined && (seen[id]?.dir !== name || seen[id].epoch < epoch)
        ? [[id, { dir: name, epoch: Math.max(epoch, seen[id]?.epoch ?? 0) }] as const]
        : [],
    );
    if (now.length > 0) this.#roster = { ...this.#roster, seen: { ...seen, ...Object.fromEntries(now) } };
    return now.length > 0;
  }

  /** Writes changed directories and epochs. The roster keeps its number and id. */
  async #writeSeen(signal: AbortSignal): Promise<void> {
    const current = this.#members().filter((member) => member.isCurrent && member.isReadable);
    if (this.#refreshSeen() && current.length > 0) await this.#write(current, signal);
  }

  get roster(): Roster {
    return this.#roster;
  }

  /** The last directory of a volume, for messages. */
  lastDirOf(id: string): string {
    return this.#members().find((member) => member.id === id)?.name ?? this.#roster.seen[id]?.dir ?? id;
  }

  /** Current volumes that are not open. */
  absent(): string[] {
    const here = new Set(this.#members().flatMap((member) => (member.isReadable ? [member.id] : [])));
    return without(this.#roster.current, [...here]);
  }

  /** Current volumes that are not open and were not abandoned. */
  missing(): string[] {
    return without(this.absent(), this.#roster.lost);
  }

  /** The note of the next decision about objects, to be written together with it, in the same step. */
  nextDecision(): NewRecord {
    this.#decision += 1;
    this.#decisions_total += 1;
    return decisionNote(this.#decision);
  }

  /** The last decision was refused and has no effect. */
  decisionRefused(): void {
    this.#decisions_total -= 1;
  }

  /** Whether a volume was used without these others after the last roster that both had. */
  hasDiverged({ roster }: Known): boolean {
    if (roster === undefined || roster.id === '' || isSame(roster, this.#roster)) return false;
    const { number, past } = this.#roster;
    return !past.includes(roster.id) && roster.number > number - PAST_MAX;
  }

  /**
   * Whether a joining volume has later decisions than all open volumes: its roster descends from theirs, and they decided
   * nothing since. A restart would use its roster too.
   */
  isAhead(member: Member, { roster }: Known): boolean {
    if (roster === undefined || !roster.current.includes(member.id) || isOldCopy(member, this.#roster)) return false;
    return this.#decisions_total === 0 && this.#roster.id !== '' && roster.past.includes(this.#roster.id);
  }

  /** Adopts the roster of a volume that is ahead, in one step: the open volumes have missed decisions. */
  adoptRoster(member: Member, { roster, decision }: Known & { roster: Roster }): void {
    this.#roster = roster;
    this.#refreshSeen();
    this.#published = roster.number;
    this.#decision = decision;
    for (const each of this.#members()) {
      each.apply({ type: 'strike' });
      each.missed_total += 1;
    }
    recognize(member);
    this.#known.set(member, roster.number);
  }

  /** Whether a joining volume missed no decision while all current volumes are unverified. */
  isMoreReliable(member: Member, { roster, decision }: Known): boolean {
    if (roster === undefined || !isSame(roster, this.#roster) || !roster.current.includes(member.id)) return false;
    if (this.#decisions_total > 0 || decision < this.#decision) return false;
    if (member.isUnverified || isOldCopy(member, this.#roster)) return false;
    return this.#members().every((each) => !each.isCurrent || each.isUnverified);
  }

  /** Makes a more reliable volume current, in this step, and strikes off the unverified ones: they are reconciled with it. */
  async prefer(member: Member, { decision }: Known, signal: AbortSignal): Promise<void> {
    recognize(member);
    this.#decision = decision;
    this.#known.set(member, this.#roster.number);
    await this.#strikeUnreliable(signal);
  }

  /** Strikes off volumes that missed a decision. Durable once it resolves. */
  async strike(ids: readonly string[], signal: AbortSignal): Promise<void> {
    this.#strike(ids);
    // Even if another call struck them off and is still writing the roster.
    if (this.#published < this.#roster.number) await this.#publish(signal);
  }

  /** Strikes off unverified volumes and older copies, unless no other volume is current. */
  async #strikeUnreliable(signal: AbortSignal): Promise<void> {
    const current = this.#members().filter((member) => member.isCurrent);
    const unreliable = current.filter((member) => member.isUnverified || isOldCopy(member, this.#roster));
    if (unreliable.length === 0 || unreliable.length === current.length) return;
    const ids = unreliable.map((member) => member.id);
    // If no volume can write it, it holds at least for this process.
    await this.strike(ids, signal).catch(() => signal.throwIfAborted());
  }

  /** Makes a reconciled volume current, in this step. It is struck off again if it cannot write its note. */
  async admit(member: Member, signal: AbortSignal): Promise<void> {
    const { members, current } = this.#roster;
    const { id, name } = member;
    // From now on this copy is the volume, even if another one had a higher epoch.
    const seen = { ...this.#roster.seen, [id]: { dir: name, epoch: member.volume.epoch ?? 0 } };
    this.#change({ members: withId(members, id), current: withId(current, id), seen });
    member.apply({ type: 'admit' });
    const decision = decisionNote(this.#decision);
    const noted = member.write([decision], signal);
    await Promise.all([noted.catch(() => this.strike([id], signal)), this.#publish(signal)]);
  }

  /** Records a decision about a volume. Durable once it resolves. */
  async note(list: 'draining' | 'lost', id: string, isListed: boolean, signal: AbortSignal): Promise<void> {
    const ids = this.#roster[list];
    if (ids.includes(id) === isListed) return;
    this.#change({ [list]: isListed ? withId(ids, id) : without(ids, [id]) });
    await this.#publish(signal);
  }

  /** Adds absent volumes that the roster does not list. Durable once it resolves. */
  async addAbsent(
    volumes: readonly { readonly id: string; readonly dir: string }[],
    signal: AbortSignal,
  ): Promise<void> {
    const unknown = volumes.filter(({ id }) => !this.#roster.members.includes(id));
    if (unknown.length === 0) return;
    const places = Object.fromEntries(unknown.map(({ id, dir }) => [id, { dir, epoch: 0 }]));
    const members = [...this.#roster.members, ...unknown.map(({ id }) => id)];
    this.#change({ members, seen: { ...places, ...this.#roster.seen } });
    await this.#publish(signal);
  }

  /** Removes a volume from the roster. Durable once it resolves. */
  async forget(id: string, signal: AbortSignal): Promise<void> {
    const { members, current, draining, lost } = this.#roster;
    const rest = (list: readonly string[]): string[] => without(list, [id]);
    this.#change({ members: rest(members), current: rest(current), draining: rest(draining), lost: rest(lost) });
    await this.#publish(signal);
  }

  /** False when none of them was current. */
  #strike(ids: readonly string[]): boolean {
    const { current } = this.#roster;
    const stay = without(current, ids);
    if (stay.length === current.length) return false;
    this.#change({ current: stay });
    for (const member of this.#members()) if (ids.includes(member.id)) member.apply({ type: 'strike' });
    return true;
  }

  #change(lists: Partial<Lists & Pick<Roster, 'seen'>>): void {
    const { number, id, past } = this.#roster;
    const before = [id, ...past].slice(0, PAST_MAX);
    this.#roster = { ...this.#roster, ...lists, number: number + 1, id: newId(), past: before };
  }

  /** Writes the roster to every current volume. A volume that could not take it is no longer current. */
  async #publish(signal: AbortSignal): Promise<void> {
    for (;;) {
      const readable = this.#members().filter((member) => member.isReadable);
      const current = readable.filter((member) => member.isCurrent);
      const recipients = current.length > 0 ? current : readable;
      const { number } = this.#roster;
      await this.#write(recipients, signal);
      // A concurrent call may have written a later roster, or struck off some of them.
      const hasMissed = (member: Member): boolean => (this.#known.get(member) ?? 0) < number;
      // A volume that was lost meanwhile has missed the roster as well.
      const isListed = (member: Member): boolean =>
        member.isCurrent || (current.includes(member) && !member.isReadable);
      const missed = recipients.filter((member) => isListed(member) && hasMissed(member)).map((member) => member.id);
      const stays = (member: Member): boolean => member.isReadable && member.isCurrent && !missed.includes(member.id);
      if (recipients.every(hasMissed) || (missed.length > 0 && !this.#members().some(stays))) {
        throw shortOf({ enough: 1, written: 0, failures: recipients.map((each) => each.failure) });
      }
      if (this.#strike(missed)) continue;
      this.#published = Math.max(this.#published, number);
      return;
    }
  }

  /** Writes the notes again to a volume that has lost them. */
  async rewriteNotes(member: Member, signal: AbortSignal): Promise<void> {
    if (!member.isCurrent || !member.isWritable) return;
    await member.write([rosterNote(this.#roster, member.id), decisionNote(this.#decision)], signal);
  }

  /** Records which volumes wrote the roster in time. */
  async #write(members: readonly Member[], signal: AbortSignal): Promise<void> {
    const roster = this.#roster;
    await writeCopies({
      order: members,
      has: () => false,
      write: async (member) => {
        await member.write([rosterNote(roster, member.id)], signal);
        this.#known.set(member, Math.max(roster.number, this.#known.get(member) ?? 0));
      },
      target: members.length,
      enough: 1,
      lag_ms: LAG_MS,
    });
    signal.throwIfAborted();
  }
}
