/**
 * Which volumes have heard everything that was decided about objects.
 *
 * Promise: a removal or a pin is acknowledged when every volume that is listed here has it. One that could not take it is
 * struck off first, durably, on those that stay: whenever it comes back, also after a restart, it is known to be stale
 * until it has been told. Of two lists the one with the higher number counts.
 * Bound: one small note on each volume. Cancellation: by the signal.
 */
import { blake3 } from '@napi-rs/blake-hash';
import { RecordType, type NewRecord, type Volume } from '@ron/cas';
import { shortOf, writeCopies } from './copies.ts';
import type { Member } from './member.ts';

export interface Roster {
  readonly number: number;
  /** Names of the volumes that have heard everything. */
  readonly current: readonly string[];
}

export const noteId = (name: string): Buffer => blake3(Buffer.from(`note: ${name}`, 'utf8'));

const ROSTER_ID = noteId('roster');

export function rosterNote(roster: Roster): NewRecord {
  return { type: RecordType.note, id: ROSTER_ID, payload: Buffer.from(JSON.stringify(roster), 'utf8') };
}

/** What a volume knows; undefined when it never was in a set, or its note is damaged: then it has to be told all. */
export async function readRoster(volume: Volume, signal: AbortSignal): Promise<Roster | undefined> {
  try {
    const note = await volume.get('note', ROSTER_ID, signal);
    return note === undefined ? undefined : parse(note.payload);
  } catch {
    signal.throwIfAborted();
    return undefined;
  }
}

function parse(payload: Uint8Array): Roster | undefined {
  const value: unknown = JSON.parse(Buffer.from(payload).toString('utf8'));
  if (typeof value !== 'object' || value === null) return undefined;
  const { number, current } = value as Partial<Roster>;
  if (typeof number !== 'number' || !Array.isArray(current)) return undefined;
  return { number, current: current.filter((name) => typeof name === 'string') };
}

/** How long others may take to hear of a new list when enough have it. */
const LAG_MS = 1000;

export class Membership {
  readonly #members: () => readonly Member[];
  #roster: Roster;

  private constructor(members: () => readonly Member[], roster: Roster) {
    this.#members = members;
    this.#roster = roster;
  }

  /** Asks the volumes. Those that the latest list does not name are stale; so are those that never heard of one. */
  static async open(members: () => readonly Member[], signal: AbortSignal): Promise<Membership> {
    const known = new Map<Member, Roster | undefined>();
    for (const member of members()) known.set(member, await readRoster(member.volume, signal));
    const latest = latestOf(known.values());
    if (latest === undefined) return await Membership.#first(members, signal);
    for (const [member, roster] of known)
      member.isCurrent = roster !== undefined && latest.current.includes(member.name);
    return new Membership(members, latest);
  }

  /** Volumes that were never in a set have all heard everything. Where that cannot be noted, they are asked again later. */
  static async #first(members: () => readonly Member[], signal: AbortSignal): Promise<Membership> {
    const roster = { number: 1, current: members().map((member) => member.name) };
    const membership = new Membership(members, roster);
    await membership.#tell(members(), signal);
    return membership;
  }

  get roster(): Roster {
    return this.#roster;
  }

  /** Names that count on hearing everything and are not here to hear it. */
  absent(): string[] {
    const here = new Set(this.#members().flatMap((member) => (member.isReadable ? [member.name] : [])));
    return this.#roster.current.filter((name) => !here.has(name));
  }

  /** Strikes off those who missed something. Durable when it resolves. */
  async strike(names: readonly string[], signal: AbortSignal): Promise<void> {
    const { number, current } = this.#roster;
    const stay = current.filter((name) => !names.includes(name));
    if (stay.length === current.length) return;
    this.#roster = { number: number + 1, current: stay };
    const remaining: Member[] = [];
    for (const member of this.#members()) {
      if (names.includes(member.name)) member.isCurrent = false;
      if (member.isReadable && stay.includes(member.name)) remaining.push(member);
    }
    const written = await this.#tell(remaining, signal);
    if (written.length === 0) throw shortOf({ enough: 1, written: 0, failures: remaining.map((each) => each.failure) });
  }

  /** Counts on a volume again that has been told everything. */
  async admit(member: Member, signal: AbortSignal): Promise<void> {
    const { number, current } = this.#roster;
    const roster = { number: number + 1, current: [...current.filter((name) => name !== member.name), member.name] };
    await member.volume.put([rosterNote(roster)], signal);
    this.#roster = roster;
    member.isCurrent = true;
    await this.#tell(
      this.#members().filter((each) => each.isCurrent && each.isReadable && each !== member),
      signal,
    );
  }

  /** Who has the list now. */
  async #tell(members: readonly Member[], signal: AbortSignal): Promise<readonly Member[]> {
    const note = rosterNote(this.#roster);
    const { written } = await writeCopies({
      order: members,
      has: () => false,
      write: (member) => member.write([note], signal),
      target: members.length,
      enough: 1,
      lag_ms: LAG_MS,
    });
    signal.throwIfAborted();
    return written;
  }
}

/** The list that counts, among what the volumes know. */
export function latestOf(rosters: Iterable<Roster | undefined>): Roster | undefined {
  let latest: Roster | undefined;
  for (const roster of rosters) {
    if (roster !== undefined && roster.number > (latest?.number ?? -1)) latest = roster;
  }
  return latest;
}
