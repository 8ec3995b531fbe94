/**
 * Reads the notes and objects of a volume at the start of a cache.
 *
 * Contract: names come in the order in which their notes were put, then every object. Damaged and foreign notes are left out.
 * Bound: one entry in memory for each note; the event loop gets a turn after `STEP` of them. Cancellation: by the signal.
 */
import { isRonError, sched } from '@ron/kernel';
import { recordBytes } from '@ron/log';
import type { Held, Kind, Volume } from '../volume/volume.ts';
import type { NoteTarget } from './evicting-store.ts';

const LIST_COUNT = 256;
const STEP = 1024;
/** Digits of the 32 bits of a time, the lowest first: names are sorted by one after the other. */
const DIGIT_BITS = 11;
const DIGITS = [0, DIGIT_BITS, 2 * DIGIT_BITS];

export interface LoadNamesInit {
  readonly volume: Pick<Volume, 'inventory' | 'get'>;
  readonly parse: (note: Uint8Array) => NoteTarget | undefined;
  readonly signal: AbortSignal;
}

export interface LoadedName extends NoteTarget {
  readonly note_bytes: number;
  readonly put_s: number;
}

export async function loadNames(
  init: LoadNamesInit,
  onName: (name: LoadedName) => void,
  onObject: (id: Uint8Array, type: number) => void,
): Promise<void> {
  const found: LoadedName[] = [];
  for await (const held of listed(init, 'note')) {
    const name = await nameOf(init, held);
    if (name !== undefined) found.push(name);
  }
  await inSteps(await byTime([found]), onName);
  for await (const { id, type } of listed(init, 'object')) onObject(id, type);
}

async function* listed({ volume, signal }: LoadNamesInit, kind: Kind): AsyncGenerator<Held, void, void> {
  for (let after: Uint8Array | undefined; ;) {
    const some = await volume.inventory(kind, after, LIST_COUNT);
    yield* some;
    after = some.at(-1)?.id;
    if (after === undefined) return;
    signal.throwIfAborted();
    await sched.pause('cache.load');
  }
}

async function nameOf({ volume, parse, signal }: LoadNamesInit, { id, put_s }: Held): Promise<LoadedName | undefined> {
  try {
    const note = await volume.get('note', id, signal);
    const target = note && parse(note.payload);
    return target && { ...target, note_bytes: recordBytes(note.payload.length, 0), put_s };
  } catch (error) {
    if (!isRonError(error, 'integrity')) throw error;
    return undefined;
  }
}

type Groups = readonly (readonly LoadedName[])[];

/** Groups in order of time. A radix sort, because it can be done in steps. */
async function byTime(groups: Groups): Promise<Groups> {
  for (const shift of DIGITS) {
    const sorted = Array.from({ length: 2 ** DIGIT_BITS }, (): LoadedName[] => []);
    await inSteps(groups, (name) => sorted[(name.put_s >>> shift) % sorted.length]!.push(name));
    groups = sorted;
  }
  return groups;
}

async function inSteps(groups: Groups, take: (name: LoadedName) => void): Promise<void> {
  let count = 0;
  for (const group of groups) {
    for (const name of group) {
      take(name);
      count += 1;
      if (count % STEP === 0) await sched.pause('cache.load');
    }
  }
}
