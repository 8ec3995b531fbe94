/**
 * Reads everything that the volumes hold, parity too, and has mended what is damaged.
 *
 * Promise: a pass reads every record of a volume and checks it. What is damaged is told once, so that it is repaired like
 * anything else. How far a pass has come is kept on the volume itself: after a restart it goes on from there. Passes
 * begin a period apart, give or take a tenth, so that volumes which were set up together are not read together.
 * Bound: `LIST_COUNT` lines and one record at a time; everything is paced before it is read. Cancellation: by the signal, at any
 * wait; what was read since the last note is read again.
 */
import { RecordType, type Held, type Kind } from '@ron/cas';
import { RonError, sched, sleep } from '@ron/kernel';
import type { Member } from './member.ts';
import { noteId } from './membership.ts';
import { patiently } from './patience.ts';
import type { Fault, VolumeSet } from './volume-set.ts';

export interface ScrubberInit {
  set: VolumeSet;
  /** Waits until `bytes` more may be read. */
  pace: (bytes: number, signal: AbortSignal) => Promise<void>;
  /** Told of each damaged record; the planner files it. */
  onFault: (fault: Fault) => void;
  /** How often a volume is read. Default 30 days. */
  period_ms?: number;
  /** A note is taken after this many bytes. Default 64 MiB. */
  note_every_bytes?: number;
}

/** How far the pass over a volume has come. */
export interface ScrubState {
  readonly pass: number;
  /** What it is at; undefined when the pass is over. */
  readonly kind: Kind | undefined;
  /** The last id that was read, in hex. */
  readonly after: string;
  readonly records: number;
  readonly bytes: number;
  readonly bad: number;
  readonly begun_s: number;
  readonly ended_s: number;
}

const KINDS: readonly Kind[] = ['content', 'object', 'stripe', 'note'];
const LIST_COUNT = 64;
const DAY_MS = 24 * 60 * 60 * 1000;
const JITTER = 0.1;
/** How often it is looked whether a pass is due. */
const LOOK_EVERY_MS = 60_000;
const NOTE_ID = noteId('scrub');
const NEVER: ScrubState = { pass: 0, kind: undefined, after: '', records: 0, bytes: 0, bad: 0, begun_s: 0, ended_s: 0 };

export class Scrubber {
  readonly #init: ScrubberInit;
  readonly #period_ms: number;
  readonly #note_every_bytes: number;
  readonly #states = new Map<string, ScrubState>();
  #isRunning = false;

  constructor(init: ScrubberInit) {
    this.#init = init;
    this.#period_ms = init.period_ms ?? 30 * DAY_MS;
    this.#note_every_bytes = init.note_every_bytes ?? 64 * 1024 * 1024;
  }

  /** By volume: the pass under way, or the last one. Volumes that were not looked at yet are not there. */
  get states(): ReadonlyMap<string, ScrubState> {
    return this.#states;
  }

  /** Reads all volumes now: goes on with passes that were interrupted, and begins one where there was none. */
  async run(signal: AbortSignal): Promise<void> {
    if (this.#isRunning) throw new RonError('conflict', 'volumes are being scrubbed already');
    this.#isRunning = true;
    try {
      for (const member of shuffled(this.#readable())) await this.#scrub(member, signal);
    } finally {
      this.#isRunning = false;
    }
  }

  /** Reads each volume when it is due, until it is told to stop. */
  async runForever(stopping: AbortSignal): Promise<void> {
    while (!stopping.aborted) {
      try {
        await this.#runDue(stopping);
        await sleep(LOOK_EVERY_MS * (1 + sched.random()), stopping, 'scrub.look');
      } catch (error) {
        if (!stopping.aborted) throw error;
      }
    }
  }

  async #runDue(signal: AbortSignal): Promise<void> {
    if (this.#isRunning) return;
    this.#isRunning = true;
    try {
      for (const member of shuffled(this.#readable())) {
        if (await this.#isDue(member, signal)) await this.#scrub(member, signal);
      }
    } finally {
      this.#isRunning = false;
    }
  }

  #readable(): Member[] {
    return this.#init.set.members.filter((member) => member.isReadable);
  }

  async #isDue(member: Member, signal: AbortSignal): Promise<boolean> {
    const state = this.#states.get(member.name) ?? (await readState(member, signal));
    this.#states.set(member.name, state);
    if (state.kind !== undefined) return true;
    const wait_ms = this.#period_ms * (1 - JITTER + 2 * JITTER * jitterOf(member.name, state.pass));
    return sched.wall_ms() >= state.ended_s * 1000 + wait_ms;
  }

  async #scrub(member: Member, signal: AbortSignal): Promise<void> {
    const before = this.#states.get(member.name) ?? (await readState(member, signal));
    const now_s = Math.floor(sched.wall_ms() / 1000);
    let state =
      before.kind === undefined ? { ...NEVER, pass: before.pass + 1, kind: KINDS[0], begun_s: now_s } : before;
    for (const kind of KINDS.slice(KINDS.indexOf(state.kind!))) {
      if (state.kind !== kind) state = { ...state, kind, after: '' };
      state = await this.#scrubKind(member, kind, state, signal);
    }
    state = { ...state, kind: undefined, after: '', ended_s: Math.floor(sched.wall_ms() / 1000) };
    await this.#note(member, state, signal);
  }

  async #scrubKind(member: Member, kind: Kind, from: ScrubState, signal: AbortSignal): Promise<ScrubState> {
    let state = from;
    let noted_bytes = state.bytes;
    for (;;) {
      signal.throwIfAborted();
      const after = state.after === '' ? undefined : Buffer.from(state.after, 'hex');
      const listed = await member.volume.inventory(kind, after, LIST_COUNT);
      if (listed.length === 0 || !member.isReadable) return state;
      for (const held of listed) {
        const isGood = await this.#check(member, kind, held, signal);
        state = {
          ...state,
          after: Buffer.from(held.id).toString('hex'),
          records: state.records + 1,
          bytes: state.bytes + held.payload_bytes,
          bad: state.bad + (isGood ? 0 : 1),
        };
        this.#states.set(member.name, state);
      }
      if (state.bytes - noted_bytes < this.#note_every_bytes) continue;
      noted_bytes = state.bytes;
      await this.#note(member, state, signal);
    }
  }

  /** What is not there any more was given up meanwhile. */
  async #check(member: Member, kind: Kind, held: Held, signal: AbortSignal): Promise<boolean> {
    await this.#init.pace(held.payload_bytes, signal);
    try {
      await patiently(member.volume.get(kind, held.id, signal));
      return true;
    } catch (error) {
      signal.throwIfAborted();
      const reason = error instanceof Error ? error.message : String(error);
      this.#init.onFault({ kind, id: held.id, volume: member.name, reason });
      return false;
    }
  }

  /** On a volume that takes no notes the next start begins anew. */
  async #note(member: Member, state: ScrubState, signal: AbortSignal): Promise<void> {
    this.#states.set(member.name, state);
    const payload = Buffer.from(JSON.stringify(state), 'utf8');
    await member.write([{ type: RecordType.note, id: NOTE_ID, payload }], signal).catch(() => signal.throwIfAborted());
  }
}

async function readState(member: Member, signal: AbortSignal): Promise<ScrubState> {
  try {
    const note = await member.volume.get('note', NOTE_ID, signal);
    if (note === undefined) return NEVER;
    const state = { ...NEVER, kind: undefined, ...(JSON.parse(Buffer.from(note.payload).toString('utf8')) as object) };
    return state.kind === undefined || KINDS.includes(state.kind) ? state : NEVER;
  } catch {
    signal.throwIfAborted();
    return NEVER;
  }
}

/** From 0 to 1, the same for the same pass over the same volume: a restart does not change when it is due. */
function jitterOf(name: string, pass: number): number {
  return noteId(`${name} ${pass}`).readUInt32LE(0) / 2 ** 32;
}

function shuffled<T>(items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, at: sched.random() }))
    .toSorted((a, b) => a.at - b.at)
    .map(({ item }) => item);
}
