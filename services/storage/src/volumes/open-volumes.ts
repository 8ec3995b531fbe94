/**
 * Opens the volumes at start: the configured ones, and those on the roster that are not configured any more, which are drained
 * and then removed.
 *
 * Contract: a directory that cannot be opened does not keep the others from serving. An empty directory becomes a volume only if
 * no volume of the roster, or of this node, was last seen there. Of two directories with the same volume the older copy is
 * refused. Abandoned volumes stay closed. If no volume can be opened, the start fails and nothing stays open.
 * Bound: the configured directories and the roster. Cancellation: by the signal, between two directories.
 */
import { resolve } from 'node:path';
import { readSuperblock, type Superblock, type Volume } from '@ron/cas';
import { readKnown, rosterOf, type Roster } from '@ron/durability';
import { RonError } from '@ron/kernel';
import type { KnownVolume } from '@ron/proto';
import { parseDataDir } from './data-dirs.ts';
import { holdsVolume } from './directory-probes.ts';
import { fileSystemOf } from './disk-share.ts';
import { absentSlot, dirsOf, openSlot, Slot, type VolumesInit } from './volume-slot.ts';

export interface OpenedVolumes {
  readonly opened: readonly (readonly [Slot, Volume])[];
  /** Absent, refused or new directories. */
  readonly later: readonly Slot[];
}

/** `known`: the volumes that this node has had. */
export async function openVolumes(init: VolumesInit, known: readonly KnownVolume[]): Promise<OpenedVolumes> {
  const opened: [Slot, Volume][] = [];
  const later: Slot[] = [];
  try {
    await openConfigured(init, known, opened, later);
    const rosters = await Promise.all(opened.map(([, volume]) => readKnown(volume, init.signal)));
    const roster = rosterOf(rosters);
    if (roster !== undefined) await openRest(init, roster, opened, later);
    await closeAbandoned(roster, opened, later);
    if (opened.length === 0) throw nothingToOpen(init, known, later);
    return { opened, later };
  } catch (error) {
    await Promise.allSettled(opened.map(([, volume]) => volume.close()));
    throw error;
  }
}

function nothingToOpen({ config }: VolumesInit, known: readonly KnownVolume[], slots: readonly Slot[]): RonError {
  const why = slots.map((slot) => slot.problem).join('; ');
  const hint = known.length === 0 ? '' : `; to start with empty directories, delete ${config.volumes_file}`;
  return new RonError('not_ready', `${why}${hint}`);
}

async function openConfigured(
  init: VolumesInit,
  known: readonly KnownVolume[],
  opened: [Slot, Volume][],
  later: Slot[],
): Promise<void> {
  const specs = dirsOf(init.config);
  const knownDirs = new Map(known.map(({ id, item }) => [resolve(parseDataDir(item)?.dir ?? item), id]));
  const isFirstStart = !(await Promise.all(specs.map((spec) => holdsVolume(spec.dir)))).includes(true);
  const refused = await refuseCopies(
    init,
    specs.map((spec) => spec.dir),
  );
  for (const spec of specs) {
    const slot = new Slot(spec);
    const refusal = refused.get(spec.dir);
    if (refusal !== undefined) slot.refuse(refusal);
    const isEmpty = !(await holdsVolume(spec.dir));
    const knownId = knownDirs.get(resolve(spec.dir));
    // It may be the mount point of a missing disk.
    if (isEmpty && knownId !== undefined) {
      slot.id = knownId;
      slot.refuse(`${spec.dir}: the directory is gone, or empty`);
    }
    const isNew = !isFirstStart && specs.length > 1 && isEmpty;
    const volume =
      isNew || slot.problem !== undefined
        ? undefined
        : await openSlot(slot, init, specs.length > 1 ? 'with others' : 'alone');
    await take(slot, volume, opened, later);
  }
}

/** Two directories of the previous version may turn out to hold the same volume only once they are open. */
async function take(slot: Slot, volume: Volume | undefined, opened: [Slot, Volume][], later: Slot[]): Promise<void> {
  const other = opened.find(([, each]) => each.id === volume?.id)?.[0];
  if (volume !== undefined && other === undefined) {
    opened.push([slot, volume]);
    return;
  }
  later.push(slot);
  if (volume === undefined) return;
  slot.id = undefined;
  slot.refuse(copyOf(slot.name, other!.name, volume.id, false));
  await volume.close();
}

/** Refuses all but the copy with the highest epoch of directories with the same volume, each with the reason. */
async function refuseCopies(init: VolumesInit, dirs: readonly string[]): Promise<Map<string, string>> {
  const refused = new Map<string, string>();
  if (dirs.length < 2) return refused;
  const found = await Promise.all(dirs.map((dir) => superblockOf(init, dir)));
  const best = new Map<string, { dir: string; epoch: number }>();
  for (const [index, superblock] of found.entries()) {
    if (superblock === undefined) continue;
    const { id, epoch } = superblock;
    const dir = dirs[index]!;
    const former = best.get(id);
    const isBest = former === undefined || epoch > former.epoch;
    if (isBest) best.set(id, { dir, epoch });
    if (former === undefined) continue;
    const [loser, winner] = isBest ? [former.dir, dir] : [dir, former.dir];
    refused.set(loser, copyOf(loser, winner, id, epoch !== former.epoch));
  }
  return refused;
}

/** Undefined if there is none, or it cannot be read: opening the directory reports the reason. */
async function superblockOf({ config, fs }: VolumesInit, dir: string): Promise<Superblock | undefined> {
  return await readSuperblock(fileSystemOf(config.data_dirs.length, fs), dir).catch(() => undefined);
}

const copyOf = (dir: string, other: string, id: string, isOlder: boolean): string =>
  `${dir}: ${isOlder ? 'an older copy' : 'a copy'} of the volume in ${other} (${id}): take one of the two out of data_dirs`;

/** Creates a slot for each volume of the roster that is not open. */
async function openRest(init: VolumesInit, roster: Roster, opened: [Slot, Volume][], later: Slot[]): Promise<void> {
  const away: Slot[] = [];
  for (const id of roster.members.filter((each) => !opened.some(([, volume]) => volume.id === each))) {
    const dir = roster.seen[id]?.dir;
    const configured = [...later, ...opened.map(([slot]) => slot)].find((slot) => slot.name === dir);
    if (dir === undefined || configured !== undefined) {
      const isFree = configured?.id === undefined || configured.id === id;
      const isInPlace = configured !== undefined && isFree && later.includes(configured);
      if (isInPlace) configured.id = id;
      else away.push(absentSlot(id, dir));
      if (isInPlace) configured.refuse(`${dir}: the directory is gone, or empty`);
      continue;
    }
    const slot = new Slot({ dir, domain: dir, weight: undefined, isDraining: false }, { isConfigured: false });
    slot.id = id;
    const isThere = await holdsVolume(dir);
    const volume = isThere ? await openSlot(slot, init, 'later', (found) => requireId(found, id)) : undefined;
    if (volume === undefined) slot.refuse(`${dir}: it is not configured any more, and vanished before it was drained`);
    await take(slot, volume, opened, later);
  }
  // An empty directory may be the mount point of one of these.
  for (const slot of later) if (away.length > 0) slot.refuse(`${slot.name}: it is empty, and ${away[0]!.problem}`);
  later.push(...away);
}

function requireId({ id }: Superblock, wanted: string): void {
  if (id !== wanted) throw new RonError('conflict', `it holds another volume (${id})`);
}

async function closeAbandoned(roster: Roster | undefined, opened: [Slot, Volume][], later: Slot[]): Promise<void> {
  const isAbandoned = ({ id }: Slot): boolean => id !== undefined && roster?.lost.includes(id) === true;
  const abandon = (slot: Slot): void => void slot.lifecycle.apply({ type: 'abandon', reason: slot.abandonedReason });
  for (const slot of later.filter(isAbandoned)) abandon(slot);
  for (const entry of opened.filter(([slot]) => isAbandoned(slot))) {
    const [slot, volume] = entry;
    opened.splice(opened.indexOf(entry), 1);
    later.push(slot);
    abandon(slot);
    await volume.close();
  }
}
