/**
 * The roster: which volumes belong to the set, the decisions about each, and which of them are current.
 *
 * Contract: a removal or a pin is acknowledged when every current volume has it. A volume that could not take it is struck
 * off the list of current volumes first, durably, on those that stay: it is stale until it has been reconciled, even after
 * a restart. With each decision a volume notes its number, and the roster keeps the last epoch of each volume: an older
 * copy of a volume has a lower number or a lower epoch, and is stale too. Decisions about volumes (draining, lost) hold
 * after a restart. Of two rosters the one with the higher number counts; a volume whose roster is not an ancestor of it was
 * used apart from the others. Volumes are known by their ids. Changes take effect in the step in which they are made, and
 * are written in that order.
 * Bound: two small notes on each volume. Cancellation: by the signal; a cancelled change may hold or not.
 */
import type { NewRecord } from '@ron/cas';
import { sched } from '@ron/kernel';
import { shortOf, writeCopies } from '../placement/copies.ts';
import type { Member } from './member.ts';
import {
  heardNote,
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
/** How far back it is known which roster came from which. */
const PAST_MAX = 64;
/** How long a volume may take to note a new roster when another one has it. */
const LAG_MS = 1000;

const newId = (): string => Buffer.from(sched.randomBytes(LIST_ID_BYTES)).toString('hex');
const without = (list: readonly string[], ids: readonly string[]): string[] => list.filter((id) => !ids.includes(id));
const withId = (list: readonly string[], id: string): string[] => [...without(list, [id]), id];

export class Membership {
  readonly #members: () => readonly Member[];
  #roster: Roster;
  #heard: number;
  /** Decisions that were made here, or are being made. */
  #decided_total = 0;
  /** The number of the last roster that every current volume has. */
  #told: number;
  /** The number of the last list that each volume took. */
  readonly #known = new WeakMap<Member, number>();

  private constructor(members: () => readonly Member[], roster: Roster, heard: number) {
    this.#members = members;
    this.#roster = roster;
    this.#heard = heard;
    this.#told = roster.number;
  }

  /** Reads the notes. Volumes with another roster than the latest, fewer decisions or an older epoch are stale. */
  static async open(members: () => readonly Member[], signal: AbortSignal): Promise<Membership> {
    const known = new Map<string, Known>();
    for (const { id, volume } of members()) known.set(id, await readKnown(volume, signal));
    const latest = rosterOf(known.values());
    if (latest === undefined) return await Membership.#first(members, signal);
    const isOfLatest = ({ id }: Member): boolean => {
      const { roster } = known.get(id)!;
      return roster !== undefined && isSame(roster, latest) && latest.current.includes(id);
    };
    const heard = Math.max(...members().map((member) => (isOfLatest(member) ? known.get(member.id)!.heard : 0)));
    for (const member of members()) {
      member.isCurrent = isOfLatest(member) && known.get(member.id)!.heard === heard;
      if (latest.draining.includes(member.id)) member.life = 'draining';
    }
    const membership = new Membership(members, latest, heard);
    await membership.#strikeUnreliable(signal);
    await membership.#noteSeen(signal);
    return membership;
  }

  /** Volumes that were never in a set are all current. A volume that takes no note gets it later. */
  static async #first(members: () => readonly Member[], signal: AbortSignal): Promise<Membership> {
    const ids = members().map((member) => member.id);
    const lists = { members: ids, current: ids, draining: [], lost: [] };
    const membership = new Membership(members, { number: 1, id: newId(), past: [], ...lists, seen: {} }, 0);
    membership.#look();
    await membership.#write(members(), signal);
    return membership;
  }

  /** Takes over where the volumes are and their epochs. False when nothing changed. */
  #look(): boolean {
    const { seen } = this.#roster;
    const now = this.#members().flatMap(({ id, name, volume: { epoch }, isReadable }) =>
      isReadable && epoch !== undefined && (seen[id]?.dir !== name || seen[id].epoch < epoch)
        ? [[id, { dir: name, epoch: Math.max(epoch, seen[id]?.epoch ?? 0) }] as const]
        : [],
    );
    if (now.length > 0) this.#roster = { ...this.#roster, seen: { ...seen, ...Object.fromEntries(now) } };
    return now.length > 0;
  }

  /** The roster stays the same one: only where volumes lie and their epochs change. */
  async #noteSeen(signal: AbortSignal): Promise<void> {
    const current = this.#members().filter((member) => member.isCurrent && member.isReadable);
    if (this.#look() && current.length > 0) await this.#write(current, signal);
  }

  get roster(): Roster {
    return this.#roster;
  }

  /** The last directory of a volume, for messages. */
  placeOf(id: string): string {
    return this.#members().find((member) => member.id === id)?.name ?? this.#roster.seen[id]?.dir ?? id;
  }

  /** Current volumes that are not here. */
  absent(): string[] {
    const here = new Set(this.#members().flatMap((member) => (member.isReadable ? [member.id] : [])));
    return without(this.#roster.current, [...here]);
  }

  /** Current volumes that are not here, and may come back. */
  missing(): string[] {
    return without(this.absent(), this.#roster.lost);
  }

  /** A note for one more decision about objects, to be written together with it, in the same step. */
  hear(): NewRecord {
    this.#heard += 1;
    this.#decided_total += 1;
    return heardNote(this.#heard);
  }

  /** The decision was refused: it has no effect. */
  refused(): void {
    this.#decided_total -= 1;
  }

  /** Whether a volume was used without these others, after both had last had the same roster. */
  isApart({ roster }: Known): boolean {
    if (roster === undefined || roster.id === '' || isSame(roster, this.#roster)) return false;
    const { number, past } = this.#roster;
    return !past.includes(roster.id) && roster.number > number - PAST_MAX;
  }

  /**
   * Whether a joining volume has later decisions than all volumes here: its roster descends from theirs, and they
   * decided nothing since. A restart would go by its roster too.
   */
  isBehind(member: Member, { roster }: Known): boolean {
    if (roster === undefined || !roster.current.includes(member.id) || isOldCopy(member, this.#roster)) return false;
    return this.#decided_total === 0 && this.#roster.id !== '' && roster.past.includes(this.#roster.id);
  }

  /** Adopts the roster of such a volume: those here have missed something. In one step. */
  goBy(member: Member, { roster, heard }: Known & { roster: Roster }): void {
    this.#roster = roster;
    this.#look();
    this.#told = roster.number;
    this.#heard = heard;
    for (const each of this.#members()) {
      each.isCurrent = false;
      each.missed_total += 1;
    }
    member.isCurrent = true;
    this.#known.set(member, roster.number);
  }

  /** Whether a volume comes that missed no decision, while the current volumes here are all in doubt. */
  isSurer(member: Member, { roster, heard }: Known): boolean {
    if (roster === undefined || !isSame(roster, this.#roster) || !roster.current.includes(member.id)) return false;
    if (this.#decided_total > 0 || heard < this.#heard) return false;
    if (member.isInDoubt || isOldCopy(member, this.#roster)) return false;
    return this.#members().every((each) => !each.isCurrent || each.isInDoubt);
  }

  /** Counts on such a volume, in this step, and strikes off those in doubt: they are told by it. */
  async prefer(member: Member, { heard }: Known, signal: AbortSignal): Promise<void> {
    member.isCurrent = true;
    this.#heard = heard;
    this.#known.set(member, this.#roster.number);
    await this.#strikeUnreliable(signal);
  }

  /** Strikes off those who missed something. Durable when it resolves. */
  async strike(ids: readonly string[], signal: AbortSignal): Promise<void> {
    this.#strike(ids);
    // Even if another call struck them off and is still writing the roster.
    if (this.#told < this.#roster.number) await this.#tell(signal);
  }

  /** Volumes that lost records without a trace, and older copies, are reconciled, unless none of the others is current. */
  async #strikeUnreliable(signal: AbortSignal): Promise<void> {
    const current = this.#members().filter((member) => member.isCurrent);
    const unreliable = current.filter((member) => member.isInDoubt || isOldCopy(member, this.#roster));
    if (unreliable.length === 0 || unreliable.length === current.length) return;
    const ids = unreliable.map((member) => member.id);
    // When no volume can note it, it holds for this process at least.
    await this.strike(ids, signal).catch(() => signal.throwIfAborted());
  }

  /** Counts on a volume again that has been told everything: in this step, and as long as it takes the note of it. */
  async admit(member: Member, signal: AbortSignal): Promise<void> {
    const { members, current } = this.#roster;
    const { id, name } = member;
    // From here on this copy is the volume, even if another one had a higher epoch.
    const seen = { ...this.#roster.seen, [id]: { dir: name, epoch: member.volume.epoch ?? 0 } };
    this.#change({ members: withId(members, id), current: withId(current, id), seen });
    member.isCurrent = true;
    member.isReconciled = true;
    const heard = heardNote(this.#heard);
    const noted = member.write([heard], signal);
    await Promise.all([noted.catch(() => this.strike([id], signal)), this.#tell(signal)]);
  }

  /** Notes a decision about a volume. Durable when it resolves. */
  async note(list: 'draining' | 'lost', id: string, isListed: boolean, signal: AbortSignal): Promise<void> {
    const ids = this.#roster[list];
    if (ids.includes(id) === isListed) return;
    this.#change({ [list]: isListed ? withId(ids, id) : without(ids, [id]) });
    await this.#tell(signal);
  }

  /** Puts volumes on the roster that its volumes do not know: they are away until they join. Durable when it resolves. */
  async expect(volumes: readonly { readonly id: string; readonly dir: string }[], signal: AbortSignal): Promise<void> {
    const unknown = volumes.filter(({ id }) => !this.#roster.members.includes(id));
    if (unknown.length === 0) return;
    const places = Object.fromEntries(unknown.map(({ id, dir }) => [id, { dir, epoch: 0 }]));
    const members = [...this.#roster.members, ...unknown.map(({ id }) => id)];
    this.#change({ members, seen: { ...places, ...this.#roster.seen } });
    await this.#tell(signal);
  }

  /** The volume belongs to the set no more. Durable when it resolves. */
  async forget(id: string, signal: AbortSignal): Promise<void> {
    const { members, current, draining, lost } = this.#roster;
    const rest = (list: readonly string[]): string[] => without(list, [id]);
    this.#change({ members: rest(members), current: rest(current), draining: rest(draining), lost: rest(lost) });
    await this.#tell(signal);
  }

  /** False when none of them counted. */
  #strike(ids: readonly string[]): boolean {
    const { current } = this.#roster;
    const stay = without(current, ids);
    if (stay.length === current.length) return false;
    this.#change({ current: stay });
    for (const member of this.#members()) if (ids.includes(member.id)) member.isCurrent = false;
    return true;
  }

  #change(lists: Partial<Lists & Pick<Roster, 'seen'>>): void {
    const { number, id, past } = this.#roster;
    const before = [id, ...past].slice(0, PAST_MAX);
    this.#roster = { ...this.#roster, ...lists, number: number + 1, id: newId(), past: before };
  }

  /** Every current volume has the roster when this resolves: one that could not take it is no longer current. */
  async #tell(signal: AbortSignal): Promise<void> {
    for (;;) {
      const readable = this.#members().filter((member) => member.isReadable);
      const counting = readable.filter((member) => member.isCurrent);
      const told = counting.length > 0 ? counting : readable;
      const { number } = this.#roster;
      await this.#write(told, signal);
      // Others may have told them more meanwhile, or struck them off.
      const isDeaf = (member: Member): boolean => (this.#known.get(member) ?? 0) < number;
      const deaf = told.filter((member) => member.isCurrent && isDeaf(member)).map((member) => member.id);
      const stays = (member: Member): boolean => member.isReadable && member.isCurrent && !deaf.includes(member.id);
      if (told.every(isDeaf) || (deaf.length > 0 && !this.#members().some(stays))) {
        throw shortOf({ enough: 1, written: 0, failures: told.map((each) => each.failure) });
      }
      if (this.#strike(deaf)) continue;
      this.#told = Math.max(this.#told, number);
      return;
    }
  }

  /** Tells a volume the list again: it has lost what it knew. */
  async remind(member: Member, signal: AbortSignal): Promise<void> {
    if (!member.isCurrent || !member.isWritable) return;
    await member.write([rosterNote(this.#roster, member.id), heardNote(this.#heard)], signal);
  }

  /** Those who take the list in time know it. */
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
