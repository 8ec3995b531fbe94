/**
 * Opens the volumes that a start finds: those that are configured, and those that belong to the set though they are not
 * configured any more, which are emptied and then let go.
 *
 * Promise: one directory that cannot be opened does not keep the others from serving; an empty one is made a volume only when
 * the set does not know it. What somebody gave up stays closed. When nothing can be opened, nothing stays open.
 */
import type { Volume } from '@ron/cas';
import { readKnown, rosterOf, type Known, type Roster } from '@ron/durability';
import { RonError } from '@ron/kernel';
import { holdsVolume } from './directory-looks.ts';
import { dirsOf, openSlot, slotOf, type Slot, type VolumesInit } from './volume-slot.ts';

export interface OpenedVolumes {
  readonly opened: readonly (readonly [Slot, Volume])[];
  /** Those that are not there, or new. */
  readonly later: readonly Slot[];
}

export async function openVolumes(init: VolumesInit): Promise<OpenedVolumes> {
  const opened: [Slot, Volume][] = [];
  const later: Slot[] = [];
  try {
    await openConfigured(init, opened, later);
    const known = opened.map(async ([{ name }, volume]) => [name, await readKnown(volume, init.signal)] as const);
    const roster = rosterOf(new Map<string, Known>(await Promise.all(known)));
    await openLeaving(init, roster, opened, later);
    for (const slot of later) if (roster?.members.includes(slot.spec.dir) === true) slot.lost ??= goneOf(slot);
    await closeGivenUp(roster, opened, later);
    if (opened.length === 0) throw new RonError('not_ready', later.map((slot) => slot.lost).join('; '));
    return { opened, later };
  } catch (error) {
    await Promise.allSettled(opened.map(([, volume]) => volume.close()));
    throw error;
  }
}

async function openConfigured(init: VolumesInit, opened: [Slot, Volume][], later: Slot[]): Promise<void> {
  const specs = dirsOf(init.config);
  const isFirstStart = !(await Promise.all(specs.map((spec) => holdsVolume(spec.dir)))).includes(true);
  for (const spec of specs) {
    const slot = slotOf(spec);
    const isNew = !isFirstStart && specs.length > 1 && !(await holdsVolume(spec.dir));
    const volume = isNew ? undefined : await openSlot(slot, init, specs.length > 1 ? 'with others' : 'alone');
    if (volume === undefined) later.push(slot);
    else opened.push([slot, volume]);
  }
}

async function openLeaving(
  init: VolumesInit,
  roster: Roster | undefined,
  opened: [Slot, Volume][],
  later: Slot[],
): Promise<void> {
  const known = new Set(dirsOf(init.config).map((spec) => spec.dir));
  for (const dir of roster?.members.filter((name) => !known.has(name)) ?? []) {
    const slot = slotOf({ dir, domain: dir, weight: undefined, isDraining: false }, { isLeaving: true });
    const volume = (await holdsVolume(dir)) ? await openSlot(slot, init, 'later') : undefined;
    if (volume === undefined) later.push(slot);
    else opened.push([slot, volume]);
  }
}

async function closeGivenUp(roster: Roster | undefined, opened: [Slot, Volume][], later: Slot[]): Promise<void> {
  const isGivenUp = (slot: Slot): boolean => roster?.lost.includes(slot.spec.dir) === true;
  for (const slot of later.filter(isGivenUp)) slot.giveUp();
  for (const entry of opened.filter(([slot]) => isGivenUp(slot))) {
    const [slot, volume] = entry;
    opened.splice(opened.indexOf(entry), 1);
    later.push(slot);
    slot.giveUp();
    await volume.close();
  }
}

const goneOf = ({ spec, isLeaving }: Slot): string =>
  isLeaving
    ? `${spec.dir}: it is not configured any more, and gone before it was emptied`
    : `${spec.dir}: the directory is gone, or empty`;
