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
/** With times of 32 bits, the sort keys are exact. */
const NAMES_MAX = 2 ** 21;

export interface LoadNamesInit {
  readonly volume: Volume;
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
  for (const [count, at] of byTime(found).entries()) {
    onName(found[at]!);
    if (count % STEP === STEP - 1) await sched.pause('cache.load');
  }
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

/** Indexes in order of time. Numbers are sorted, because comparing objects would take a long turn of the event loop. */
function byTime(names: readonly LoadedName[]): Uint32Array {
  const first_s = names.reduce((least, { put_s }) => Math.min(least, put_s), Infinity);
  const keys = Float64Array.from(names, ({ put_s }, at) => (put_s - first_s) * NAMES_MAX + at).toSorted();
  return Uint32Array.from(keys, (each) => each % NAMES_MAX);
}
