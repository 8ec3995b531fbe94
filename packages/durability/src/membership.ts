/**
 * Who belongs to the set, what was decided about each, and which volumes have heard everything about objects.
 *
 * Promise: a removal or a pin is acknowledged when every volume that counts has it. One that could not take it is struck
 * off first, durably, on those that stay: whenever it comes back, also after a restart, it is known to be stale until it
 * has been told. With each decision a volume notes its number: an old copy of a volume in its place has heard less than the
 * others, and is stale as well. A volume that lies elsewhere than it did is still the same. What was decided about volumes (emptied, given up) holds after a restart. Of two lists the
 * one with the higher number counts; a volume whose list is none of those before it was used apart from the others.
 * Every change takes effect in the step in which it is made, and is told in that order: changes at the same time add up.
 * Bound: two small notes on each volume. Cancellation: by the signal; then a change may hold or not.
 */
import { blake3 } from '@napi-rs/blake-hash';
import { RecordType, type NewRecord, type Volume } from '@ron/cas';
import { sched } from '@ron/kernel';
import { shortOf, writeCopies } from './copies.ts';
import type { Member } from './member.ts';

/** Names of volumes, by what is known of them. */
export interface Lists {
  /** All that belong to the set, here or not. */
  readonly members: readonly string[];
  /** Those that have heard everything. */
  readonly current: readonly string[];
  /** Those that are to be emptied. */
  readonly draining: readonly string[];
  /** Those that somebody gave up: they do not come back by themselves. */
  readonly lost: readonly string[];
}

export interface Roster extends Lists {
  readonly number: number;
  /** Tells it from another one with the same number, made by volumes that were used apart. */
  readonly id: string;
  /** The ids of those before it, the latest first. */
  readonly past: readonly string[];
}

/** What a volume knows. */
export interface Known {
  readonly roster: Roster | undefined;
  /** What it was called when it took that list: a directory may lie elsewhere by now. */
  readonly holder: string | undefined;
  /** The number of the last decision about an object that it heard. */
  readonly heard: number;
}

export const noteId = (name: string): Buffer => blake3(Buffer.from(`note: ${name}`, 'utf8'));

const ROSTER_ID = noteId('roster');
const HEARD_ID = noteId('heard');
const LIST_ID_BYTES = 6;
/** How far back it is known which list came from which. */
const PAST_MAX = 64;
/** How long a volume may take to hear of a new list when another one has it. */
const LAG_MS = 1000;

const noteOf = (id: Buffer, value: unknown): NewRecord => ({
  type: RecordType.note,
  id,
  payload: Buffer.from(JSON.stringify(value), 'utf8'),
});

/** The list as the volume of this name keeps it. */
export const rosterNote = (roster: Roster, holder: string): NewRecord => noteOf(ROSTER_ID, { ...roster, holder });

/** What a volume knows; nothing when it never was in a set, or its notes are damaged: then it has to be told all. */
export async function readKnown(volume: Volume, signal: AbortSignal): Promise<Known> {
  const note = await readNote(volume, ROSTER_ID, signal);
  const roster = parseRoster(note);
  const { holder } = (note ?? {}) as { holder?: unknown };
  const heard = await readNote(volume, HEARD_ID, signal);
  return {
    roster,
    holder: typeof holder === 'string' ? holder : undefined,
    heard: typeof heard === 'number' ? heard : 0,
  };
}

async function readNote(volume: Volume, id: Buffer, signal: AbortSignal): Promise<unknown> {
  try {
    const note = await volume.get('note', id, signal);
    return note === undefined ? undefined : JSON.parse(Buffer.from(note.payload).toString('utf8'));
  } catch {
    signal.throwIfAborted();
    return undefined;
  }
}

function parseRoster(value: unknown): Roster | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { number, id, ...lists } = value as Partial<Roster>;
  if (typeof number !== 'number' || !Array.isArray(lists.current)) return undefined;
  const namesOf = (list: unknown): string[] =>
    Array.isArray(list) ? list.filter((name) => typeof name === 'string') : [];
  const { members, current, draining, lost, past } = lists;
  return {
    number,
    // Lists were not told apart once.
    id: typeof id === 'string' ? id : '',
    past: namesOf(past),
    members: namesOf(members ?? current),
    current: namesOf(current),
    draining: namesOf(draining),
    lost: namesOf(lost),
  };
}

/** The list that counts, among what volumes know, with the names that the volumes have now. */
export function rosterOf(known: ReadonlyMap<string, Known>): Roster | undefined {
  const latest = latestOf(known.values());
  if (latest === undefined) return undefined;
  const newNames = newNamesOf(known, latest);
  const taken = new Set(newNames.values());
  // Whoever had a name that is another one's now is not here.
  const renamed = (names: readonly string[]): string[] =>
    names.flatMap((name) => newNames.get(name) ?? (taken.has(name) ? [] : name));
  const { members, current, draining, lost } = latest;
  return {
    ...latest,
    members: renamed(members),
    current: renamed(current),
    draining: renamed(draining),
    lost: renamed(lost),
  };
}

/**
 * Of those that know the latest list, by the names that they have in it, the names that they have now. Of a volume and a copy
 * of it, the one that heard more keeps the name, then the one that lies where it lay.
 */
function newNamesOf(known: ReadonlyMap<string, Known>, latest: Roster): Map<string, string> {
  const holders = [...known].filter(([, { roster }]) => roster !== undefined && isSame(roster, latest));
  const isInPlace = ([name, { holder }]: (typeof holders)[number]): number => Number(name === holder);
  const newNames = new Map<string, string>();
  for (const [name, { holder }] of holders.toSorted((a, b) => b[1].heard - a[1].heard || isInPlace(b) - isInPlace(a))) {
    if (holder !== undefined && !newNames.has(holder)) newNames.set(holder, name);
  }
  return newNames;
}

/** Of two lists with the same number, the one that more volumes know. */
function latestOf(known: Iterable<Known>): Roster | undefined {
  const rosters = [...known].flatMap(({ roster }) => roster ?? []);
  const votesFor = (roster: Roster): number => rosters.filter((each) => isSame(each, roster)).length;
  const order = (a: Roster, b: Roster): number =>
    b.number - a.number || votesFor(b) - votesFor(a) || (a.id < b.id ? -1 : 1);
  return rosters.toSorted(order)[0];
}

const isSame = (a: Roster, b: Roster): boolean => a.number === b.number && a.id === b.id;
const newId = (): string => Buffer.from(sched.randomBytes(LIST_ID_BYTES)).toString('hex');
const without = (list: readonly string[], names: readonly string[]): string[] =>
  list.filter((name) => !names.includes(name));
const withName = (list: readonly string[], name: string): string[] => [...without(list, [name]), name];

export class Membership {
  readonly #members: () => readonly Member[];
  #roster: Roster;
  #heard: number;
  /** Decisions that were made here, or are being made. */
  #decided_total = 0;
  /** The number of the last list that everybody knows who counts. */
  #told: number;
  /** The number of the last list that each volume took. */
  readonly #known = new WeakMap<Member, number>();

  private constructor(members: () => readonly Member[], roster: Roster, heard: number) {
    this.#members = members;
    this.#roster = roster;
    this.#heard = heard;
    this.#told = roster.number;
  }

  /** Asks the volumes. Those that know another list than the latest, or have heard less than others of it, are stale. */
  static async open(members: () => readonly Member[], signal: AbortSignal): Promise<Membership> {
    const known = new Map<string, Known>();
    for (const { name, volume } of members()) known.set(name, await readKnown(volume, signal));
    const latest = rosterOf(known);
    if (latest === undefined) return await Membership.#first(members, signal);
    const isOfLatest = (member: Member): boolean => {
      const { roster } = known.get(member.name)!;
      return roster !== undefined && isSame(roster, latest) && latest.current.includes(member.name);
    };
    const heard = Math.max(...members().map((member) => (isOfLatest(member) ? known.get(member.name)!.heard : 0)));
    for (const member of members()) {
      member.isCurrent = isOfLatest(member) && known.get(member.name)!.heard === heard;
      if (latest.draining.includes(member.name)) member.life = 'draining';
    }
    const membership = new Membership(members, latest, heard);
    await membership.#strikeDoubtful(signal);
    return membership;
  }

  /** Volumes that were never in a set have all heard everything. Where that cannot be noted, they are asked again later. */
  static async #first(members: () => readonly Member[], signal: AbortSignal): Promise<Membership> {
    const names = members().map((member) => member.name);
    const lists = { members: names, current: names, draining: [], lost: [] };
    const membership = new Membership(members, { number: 1, id: newId(), past: [], ...lists }, 0);
    await membership.#write(members(), signal);
    return membership;
  }

  get roster(): Roster {
    return this.#roster;
  }

  /** Names that count on hearing everything and are not here to hear it. */
  absent(): string[] {
    const here = new Set(this.#members().flatMap((member) => (member.isReadable ? [member.name] : [])));
    return without(this.#roster.current, [...here]);
  }

  /** Names that have heard more than anybody who is here, and may come back. */
  missing(): string[] {
    return without(this.absent(), this.#roster.lost);
  }

  /** A note for one more decision about objects, to be written together with it, in the same step. */
  hear(): NewRecord {
    this.#heard += 1;
    this.#decided_total += 1;
    return noteOf(HEARD_ID, this.#heard);
  }

  /** The decision was refused: nobody relies on it. */
  refused(): void {
    this.#decided_total -= 1;
  }

  /** Whether a volume was used without these others, after both had last heard the same. */
  isApart({ roster }: Known): boolean {
    if (roster === undefined || roster.id === '' || isSame(roster, this.#roster)) return false;
    const { number, past } = this.#roster;
    return !past.includes(roster.id) && roster.number > number - PAST_MAX;
  }

  /**
   * Whether a volume comes that has heard more than all who were here: its list came from theirs, and they
   * decided nothing since. A restart would go by its list as well.
   */
  isBehind(member: Member, { roster, holder }: Known): boolean {
    if (roster === undefined || holder !== member.name || !roster.current.includes(member.name)) return false;
    return this.#decided_total === 0 && this.#roster.id !== '' && roster.past.includes(this.#roster.id);
  }

  /** Goes by what such a volume knows. Those who were here have missed something. In one step. */
  goBy(member: Member, { roster, heard }: Known & { roster: Roster }): void {
    this.#roster = roster;
    this.#told = roster.number;
    this.#heard = heard;
    for (const each of this.#members()) {
      each.isCurrent = false;
      each.missed_total += 1;
    }
    member.isCurrent = true;
    this.#known.set(member, roster.number);
  }

  /** Strikes off those who missed something. Durable when it resolves. */
  async strike(names: readonly string[], signal: AbortSignal): Promise<void> {
    this.#strike(names);
    // Also when somebody else struck them off, and is still telling.
    if (this.#told < this.#roster.number) await this.#tell(signal);
  }

  /** Those that lost more than they know are told everything, unless there is nobody who could tell them. */
  async #strikeDoubtful(signal: AbortSignal): Promise<void> {
    const current = this.#members().filter((member) => member.isCurrent);
    const doubtful = current.filter((member) => member.volume.isDoubtful === true);
    if (doubtful.length === 0 || doubtful.length === current.length) return;
    const names = doubtful.map((member) => member.name);
    // When nobody can note it, it counts for this process at least.
    await this.strike(names, signal).catch(() => signal.throwIfAborted());
  }

  /** Counts on a volume again that has been told everything: in this step, and as long as it takes the note of it. */
  async admit(member: Member, signal: AbortSignal): Promise<void> {
    const { members, current } = this.#roster;
    const { name } = member;
    this.#change({ members: withName(members, name), current: withName(current, name) });
    member.isCurrent = true;
    member.isReconciled = true;
    const heard = noteOf(HEARD_ID, this.#heard);
    const noted = member.write([heard], signal);
    await Promise.all([noted.catch(() => this.strike([name], signal)), this.#tell(signal)]);
  }

  /** Notes a decision about a volume. Durable when it resolves. */
  async note(list: 'draining' | 'lost', name: string, isListed: boolean, signal: AbortSignal): Promise<void> {
    const names = this.#roster[list];
    if (names.includes(name) === isListed) return;
    this.#change({ [list]: isListed ? withName(names, name) : without(names, [name]) });
    await this.#tell(signal);
  }

  /** The volume belongs to the set no more. Durable when it resolves. */
  async forget(name: string, signal: AbortSignal): Promise<void> {
    const { members, current, draining, lost } = this.#roster;
    const rest = (list: readonly string[]): string[] => without(list, [name]);
    this.#change({ members: rest(members), current: rest(current), draining: rest(draining), lost: rest(lost) });
    await this.#tell(signal);
  }

  /** False when none of them counted. */
  #strike(names: readonly string[]): boolean {
    const { current } = this.#roster;
    const stay = without(current, names);
    if (stay.length === current.length) return false;
    this.#change({ current: stay });
    for (const member of this.#members()) if (names.includes(member.name)) member.isCurrent = false;
    return true;
  }

  #change(lists: Partial<Lists>): void {
    const { number, id, past } = this.#roster;
    const before = [id, ...past].slice(0, PAST_MAX);
    this.#roster = { ...this.#roster, ...lists, number: number + 1, id: newId(), past: before };
  }

  /** Everybody who counts knows the list when this resolves: who could not take it does not count any more. */
  async #tell(signal: AbortSignal): Promise<void> {
    for (;;) {
      const readable = this.#members().filter((member) => member.isReadable);
      const counting = readable.filter((member) => member.isCurrent);
      const told = counting.length > 0 ? counting : readable;
      const { number } = this.#roster;
      await this.#write(told, signal);
      // Others may have told them more meanwhile, or struck them off.
      const isDeaf = (member: Member): boolean => (this.#known.get(member) ?? 0) < number;
      const deaf = told.filter((member) => member.isCurrent && isDeaf(member)).map((member) => member.name);
      const stays = (member: Member): boolean => member.isReadable && member.isCurrent && !deaf.includes(member.name);
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
    await member.write([rosterNote(this.#roster, member.name), noteOf(HEARD_ID, this.#heard)], signal);
  }

  /** Those who take the list in time know it. */
  async #write(members: readonly Member[], signal: AbortSignal): Promise<void> {
    const roster = this.#roster;
    await writeCopies({
      order: members,
      has: () => false,
      write: async (member) => {
        await member.write([rosterNote(roster, member.name)], signal);
        this.#known.set(member, Math.max(roster.number, this.#known.get(member) ?? 0));
      },
      target: members.length,
      enough: 1,
      lag_ms: LAG_MS,
    });
    signal.throwIfAborted();
  }
}
