/**
 * Reads every record of the volumes, including parity, and reports damaged ones for repair.
 *
 * Contract: a pass reads and verifies every byte of a volume, with the journals of uploads at its end. Records that a volume
 * cannot repair itself are reported. A volume that cannot be read, or takes too long, ends only its own pass: the pass has a
 * `problem`, and continues from there the next time. The progress of a pass is kept on the volume, so a restart continues it.
 * Passes over a volume begin a period apart, give or take a tenth, counted from the beginning of the last one. Volumes are
 * read concurrently and share one pace. A pass that cannot end within its period at the configured rate is listed in `late`.
 * Bound: one pass for each volume, one step of it at a time; each is paced by the bytes that it read. Cancellation: by the
 * signal, at any wait; bytes read since the last note are read again.
 */
import { noteId, RecordType, type JournalScrub, type ScrubCursor, type ScrubStep, type Volume } from '@ron/cas';
import { RonError, sched, sleep } from '@ron/kernel';
import type { ScrubPass } from '@ron/proto';
import type { Member } from '../membership/member.ts';
import { withVolumeTimeout } from '../set/volume-timeout.ts';
import type { Fault, VolumeSet } from '../set/volume-set.ts';

export interface ScrubberInit {
  set: VolumeSet;
  /** Waits until `bytes` more may be read. */
  pace: (bytes: number, signal: AbortSignal) => Promise<void>;
  /** Called for each damaged record; the planner files its repair. */
  onFault: (fault: Fault) => void;
  /** Checks the journals of uploads beside a volume. */
  journals?: (volume: Volume, signal: AbortSignal) => Promise<JournalScrub>;
  /** The rate that all passes share, in bytes per second. Default: no limit. */
  rate_bytes_per_s?: () => number;
  /** How often a volume is read. Default 30 days. */
  period_ms?: number;
  /** Progress is noted after this many bytes. Default 64 MiB. */
  note_every_bytes?: number;
}

export interface ScrubState extends ScrubPass {
  /** The position in the volume; undefined after the pass. */
  readonly cursor: ScrubCursor | undefined;
  readonly isRunning: boolean;
}

const DAY_MS = 24 * 60 * 60 * 1000;
const JITTER = 0.1;
/** How often due passes are checked. */
const LOOK_EVERY_MS = 60_000;
const NOTE_ID = noteId('scrub');
const NEVER: ScrubState = {
  pass: 0,
  cursor: undefined,
  isRunning: false,
  records: 0,
  bytes: 0,
  bad: 0,
  begun_s: 0,
  ended_s: 0,
};

export class Scrubber {
  readonly #init: ScrubberInit;
  readonly #period_ms: number;
  readonly #note_every_bytes: number;
  readonly #states = new Map<string, ScrubState>();
  /** By volume: its pass, and the reason why it could not be read to the end. */
  readonly #passes = new Map<string, Promise<string | undefined>>();

  constructor(init: ScrubberInit) {
    this.#init = init;
    this.#period_ms = init.period_ms ?? 30 * DAY_MS;
    this.#note_every_bytes = init.note_every_bytes ?? 64 * 1024 * 1024;
  }

  /** By the id of the volume: the current pass, or the last one. Volumes that were not scrubbed yet have no entry. */
  get states(): ReadonlyMap<string, ScrubState> {
    return this.#states;
  }

  /**
   * Passes that cannot end within their period, by the name of the volume, with the reason. They share the rate: until one
   * has ended, each other one has read as much, or has ended.
   */
  get late(): ReadonlyMap<string, string> {
    const running = this.#readable().flatMap(({ id, name, volume }) => {
      const state = this.#states.get(id);
      if (state?.isRunning !== true) return [];
      const left_bytes = Math.max(0, volume.stats().used_bytes - state.bytes);
      return [{ name, left_bytes, left_ms: state.begun_s * 1000 + this.#period_ms - sched.wall_ms() }];
    });
    const rate_bytes_per_s = this.#init.rate_bytes_per_s?.() ?? Infinity;
    const late = new Map<string, string>();
    for (const { name, left_bytes, left_ms } of running) {
      const before_bytes = running.reduce((sum, each) => sum + Math.min(each.left_bytes, left_bytes), 0);
      const needed_ms = left_bytes === 0 ? 0 : (before_bytes / rate_bytes_per_s) * 1000;
      if (needed_ms > left_ms) late.set(name, lateness(left_bytes, needed_ms, left_ms));
    }
    return late;
  }

  /**
   * Reads all volumes now: continues interrupted passes, joins those under way, and begins the others. If some volumes could
   * not be read to the end, it fails after the others.
   */
  async run(signal: AbortSignal): Promise<void> {
    const passes = this.#readable().map((member) => this.#passes.get(member.id) ?? this.#begin(member, signal));
    const problems = (await allEnded(passes)).flatMap((problem) => problem ?? []);
    if (problems.length > 0) throw new RonError('not_ready', `not everything could be read: ${problems.join('; ')}`);
  }

  /** Reads each volume when it is due, until `stopping`. */
  async runForever(stopping: AbortSignal): Promise<void> {
    try {
      while (!stopping.aborted) {
        for (const member of shuffled(this.#readable())) {
          if (!this.#passes.has(member.id) && (await this.#isDue(member, stopping))) {
            // It is in `passes`, which are awaited at the end.
            void this.#begin(member, stopping);
          }
        }
        await sleep(LOOK_EVERY_MS * (1 + sched.random()), stopping, 'scrub.look');
      }
    } catch (error) {
      if (!stopping.aborted) throw error;
    } finally {
      // [storage I-8]
      await Promise.allSettled(this.#passes.values());
    }
  }

  #begin(member: Member, signal: AbortSignal): Promise<string | undefined> {
    const pass = this.#scrub(member, signal).finally(() => this.#passes.delete(member.id));
    this.#passes.set(member.id, pass);
    // Awaited by `run` and `runForever`; it fails only by the signal.
    pass.catch(() => undefined);
    return pass;
  }

  #readable(): Member[] {
    return this.#init.set.members.filter((member) => member.isReadable);
  }

  async #isDue(member: Member, signal: AbortSignal): Promise<boolean> {
    const state = await this.#stateOf(member, signal);
    if (state.isRunning) return true;
    const wait_ms = this.#period_ms * (1 - JITTER + 2 * JITTER * jitterOf(member.id, state.pass));
    return sched.wall_ms() >= state.begun_s * 1000 + wait_ms;
  }

  async #stateOf(member: Member, signal: AbortSignal): Promise<ScrubState> {
    const state = this.#states.get(member.id) ?? (await readState(member, signal));
    this.#states.set(member.id, state);
    return state;
  }

  /** Why the volume could not be read to the end, if so. */
  async #scrub(member: Member, signal: AbortSignal): Promise<string | undefined> {
    const { problem: _, ...before } = await this.#stateOf(member, signal);
    const begun_s = Math.floor(sched.wall_ms() / 1000);
    const state = before.isRunning ? before : { ...NEVER, pass: before.pass + 1, isRunning: true, begun_s };
    this.#states.set(member.id, state);
    try {
      await this.#readAll(member, state, signal);
      return undefined;
    } catch (error) {
      signal.throwIfAborted();
      const problem = `${member.name}: ${error instanceof Error ? error.message : String(error)}`;
      this.#states.set(member.id, { ...this.#states.get(member.id)!, problem });
      return problem;
    }
  }

  async #readAll(member: Member, from: ScrubState, signal: AbortSignal): Promise<void> {
    let state = from;
    let noted_bytes = state.bytes;
    for (;;) {
      signal.throwIfAborted();
      if (!member.isReadable) throw new RonError('not_ready', 'it was lost');
      const step = await withVolumeTimeout(Promise.resolve(member.volume.scrub?.(state.cursor, signal)));
      if (step === undefined) break;
      state = advanced(state, step);
      this.#states.set(member.id, state);
      await this.#report(member, step, signal);
      await this.#init.pace(step.bytes, signal);
      if (state.bytes - noted_bytes < this.#note_every_bytes) continue;
      noted_bytes = state.bytes;
      await this.#note(member, state, signal);
    }
    state = await this.#readJournals(member, state, signal);
    const ended_s = Math.floor(sched.wall_ms() / 1000);
    await this.#note(member, { ...state, cursor: undefined, isRunning: false, ended_s }, signal);
  }

  async #readJournals(member: Member, state: ScrubState, signal: AbortSignal): Promise<ScrubState> {
    const read = await this.#init.journals?.(member.volume, signal);
    if (read === undefined) return state;
    await this.#init.pace(read.bytes, signal);
    const { bytes, records, bad } = state;
    return { ...state, bytes: bytes + read.bytes, records: records + read.records, bad: bad + read.bad };
  }

  async #report(member: Member, { faults }: ScrubStep, signal: AbortSignal): Promise<void> {
    for (const { kind, id, reason } of faults) {
      this.#init.onFault({ kind, id, volume: member.id, reason });
      // The notes about the set are on every volume.
      if (kind === 'note')
        await this.#init.set.membership.rewriteNotes(member, signal).catch(() => signal.throwIfAborted());
    }
  }

  /** On a volume that takes no notes, the next start begins a new pass. */
  async #note(member: Member, state: ScrubState, signal: AbortSignal): Promise<void> {
    this.#states.set(member.id, state);
    const payload = Buffer.from(JSON.stringify(state), 'utf8');
    const noted = member.write([{ type: RecordType.note, id: NOTE_ID, payload }], signal);
    await withVolumeTimeout(noted).catch(() => signal.throwIfAborted());
  }
}

/** Resolves once all have ended; the first failure fails it. */
async function allEnded<T>(work: readonly Promise<T>[]): Promise<T[]> {
  await Promise.allSettled(work);
  return await Promise.all(work);
}

const HOUR_MS = 60 * 60 * 1000;
const GIB = 1024 ** 3;

function lateness(left_bytes: number, needed_ms: number, left_ms: number): string {
  const left = `${(left_bytes / GIB).toFixed(1)} GiB are left to read`;
  if (left_ms <= 0) return `${left}, and the period of the pass is over`;
  return `${left}, which takes ${hours(needed_ms)} h; its period ends in ${hours(left_ms)} h`;
}

const hours = (time_ms: number): string => (time_ms / HOUR_MS).toFixed(1);

async function readState(member: Member, signal: AbortSignal): Promise<ScrubState> {
  try {
    const note = await withVolumeTimeout(member.volume.get('note', NOTE_ID, signal));
    if (note === undefined) return NEVER;
    return stateIn(JSON.parse(Buffer.from(note.payload).toString('utf8')));
  } catch {
    signal.throwIfAborted();
    return NEVER;
  }
}

/** The note may be of another version: unknown content begins a new pass. */
function stateIn(noted: Partial<ScrubState>): ScrubState {
  const { isRunning = false, cursor } = noted;
  const isKnown = Number.isSafeInteger(noted.pass) && (!isRunning || cursor === undefined || isCursor(cursor));
  return isKnown ? { ...NEVER, ...noted } : { ...NEVER, pass: Number(noted.pass) || 0 };
}

function isCursor({ at, end, gaps }: Partial<ScrubCursor>): boolean {
  return [at, end].every((pair) => Array.isArray(pair) && pair.length === 2) && Array.isArray(gaps);
}

function advanced(state: ScrubState, { cursor, records, bytes, bad }: ScrubStep): ScrubState {
  return {
    ...state,
    cursor,
    records: state.records + records,
    bytes: state.bytes + bytes,
    bad: state.bad + bad,
  };
}

/** From 0 to 1, the same for the same pass over the same volume: a restart does not change when it is due. */
function jitterOf(id: string, pass: number): number {
  return noteId(`${id} ${pass}`).readUInt32LE(0) / 2 ** 32;
}

function shuffled<T>(items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, at: sched.random() }))
    .toSorted((a, b) => a.at - b.at)
    .map(({ item }) => item);
}
