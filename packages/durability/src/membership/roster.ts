/**
 * The notes that each volume keeps about its set: the roster, and the number of the last decision about objects.
 *
 * Contract: of several rosters, `rosterOf` returns the one in force. A note of the previous version, which listed volumes
 * by name, is read with the ids that are derived from those names. A note that cannot be read counts as none.
 * Bound: the volumes and `past`. Cancellation: by the signal.
 */
import { isVolumeId, legacyVolumeId, noteId, RecordType, type NewRecord, type Volume } from '@ron/cas';
import type { Member } from './member.ts';

/** Ids of volumes. */
export interface Lists {
  /** All that belong to the set, open or not. */
  readonly members: readonly string[];
  /** Those that have every decision about objects. */
  readonly current: readonly string[];
  /** Those to be drained. */
  readonly draining: readonly string[];
  /** Those that the operator abandoned: they stay closed until they are restored. */
  readonly lost: readonly string[];
}

/** Where and with which epoch a volume was last open. */
export interface Seen {
  /** The directory: a hint for messages and for finding a volume that is not configured, never an identity. */
  readonly dir: string;
  readonly epoch: number;
}

export interface Roster extends Lists {
  readonly number: number;
  /** Distinguishes rosters of the same number that diverged volumes made. */
  readonly id: string;
  /** The ids of its ancestors, the latest first. */
  readonly past: readonly string[];
  /** By volume. */
  readonly seen: Readonly<Record<string, Seen>>;
}

/** The notes of one volume. */
export interface Known {
  readonly roster: Roster | undefined;
  /** The number of the last decision about an object that it has. */
  readonly decision: number;
}

/** Of the note: the previous version had none. */
const FORMAT = 2;
const ROSTER_ID = noteId('roster');
const DECISION_ID = noteId('heard');

const noteOf = (id: Buffer, value: unknown): NewRecord => ({
  type: RecordType.note,
  id,
  payload: Buffer.from(JSON.stringify(value), 'utf8'),
});

/** The number of the last decision about objects. */
export const decisionNote = (decision: number): NewRecord => noteOf(DECISION_ID, decision);

/** The roster as a volume keeps it: with its own id, from which a deleted superblock can be rebuilt. */
export const rosterNote = (roster: Roster, holder: string): NewRecord =>
  noteOf(ROSTER_ID, { format: FORMAT, ...roster, holder });

/** Empty for a volume that was never in a set. One whose notes are damaged has to be reconciled. */
export async function readKnown(volume: Volume, signal: AbortSignal): Promise<Known> {
  const roster = parseRoster(await readNote(volume, ROSTER_ID, signal));
  const decision = await readNote(volume, DECISION_ID, signal);
  return { roster, decision: typeof decision === 'number' ? decision : 0 };
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
  const { format, number, id, seen, ...lists } = value as Partial<Roster> & { format?: unknown };
  if (typeof number !== 'number' || !Array.isArray(lists.current)) return undefined;
  const textsOf = (list: unknown): string[] =>
    Array.isArray(list) ? list.filter((name) => typeof name === 'string') : [];
  const isNamed = format !== FORMAT;
  // The previous version listed volumes by name.
  const idsOf = (list: unknown): string[] => (isNamed ? textsOf(list).map(legacyVolumeId) : textsOf(list));
  const members = lists.members ?? lists.current;
  return {
    number,
    // The first rosters had no id.
    id: typeof id === 'string' ? id : '',
    past: textsOf(lists.past),
    members: idsOf(members),
    current: idsOf(lists.current),
    draining: idsOf(lists.draining),
    lost: idsOf(lists.lost),
    seen: isNamed
      ? Object.fromEntries(textsOf(members).map((name) => [legacyVolumeId(name), { dir: name, epoch: 0 }]))
      : parseSeen(seen),
  };
}

function parseSeen(value: unknown): Record<string, Seen> {
  const entries = Object.entries(Object(value) as Record<string, Partial<Seen> | null>);
  return Object.fromEntries(
    entries.flatMap(([id, each]) => {
      const { dir, epoch } = each ?? {};
      const isValid = isVolumeId(id) && typeof dir === 'string' && Number.isSafeInteger(epoch);
      return isValid ? [[id, { dir, epoch: epoch! }]] : [];
    }),
  );
}

/** The roster in force. Its copies may differ in the epochs: the highest epoch of each volume counts. */
export function rosterOf(known: Iterable<Known>): Roster | undefined {
  const rosters = [...known].flatMap(({ roster }) => roster ?? []);
  const latest = latestOf(rosters);
  if (latest === undefined) return undefined;
  const copies = rosters.filter((each) => isSame(each, latest));
  return { ...latest, seen: copies.map((each) => each.seen).reduce(withSeen, latest.seen) };
}

/** Of two entries the one with the higher epoch. */
function withSeen(a: Roster['seen'], b: Roster['seen']): Roster['seen'] {
  const newer = Object.entries(b).filter(([id, { epoch }]) => epoch > (a[id]?.epoch ?? -1));
  return newer.length === 0 ? a : { ...a, ...Object.fromEntries(newer) };
}

/** Of two with the same number, the one that more volumes have. */
function latestOf(rosters: readonly Roster[]): Roster | undefined {
  const votesFor = (roster: Roster): number => rosters.filter((each) => isSame(each, roster)).length;
  const order = (a: Roster, b: Roster): number =>
    b.number - a.number || votesFor(b) - votesFor(a) || (a.id < b.id ? -1 : 1);
  return rosters.toSorted(order)[0];
}

export const isSame = (a: Roster, b: Roster): boolean => a.number === b.number && a.id === b.id;
/** Whether the volume was open elsewhere, with a higher epoch, after this copy of it was made. */
export const isOldCopy = ({ id, volume }: Member, { seen }: Roster): boolean =>
  (volume.epoch_before ?? Infinity) < (seen[id]?.epoch ?? 0);
