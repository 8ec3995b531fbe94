/**
 * Records of names that arrive from the network: verified, compared with the known ones, and remembered.
 *
 * Contract: an invalid or expired record, one with a lower seq than the highest known, and one that contradicts a known
 * `moved_to` never becomes current; a `moved_to` does even below the highest seq. A fork of an
 * own or trusted name is appended to the log before it is stored; forks of other names, and forks
 * that the log cannot take now, are stored only.
 * Bound: `VALUES_MAX` records per call, `FORKS_PER_S` log entries for forks (a key can sign any number of them), `SWAPS_MAX`
 * attempts against concurrent changes.
 */
import { isRonError, sched, TokenBucket } from '@ron/kernel';
import { notAfterProblem } from '@ron/proto/names';
import { HISTORY_MAX, type IndexStore, type StoredName, type StoredRecord } from '../store/index-store.ts';
import { isMove } from '../store/record-order.ts';
import { isSame, mergeRecord, type NameState } from './rules.ts';
import { verifyValue } from './signed-record.ts';

const VALUES_MAX = 64;
const SWAPS_MAX = 3;
const FORKS_PER_S = 1;
const FORKS_BURST = 60;

export interface AdoptionInit {
  readonly store: Pick<IndexStore, 'highestSeq' | 'history' | 'name' | 'saveSeen'>;
  readonly isTrusted: (key: string) => boolean;
  /** Appends a fork to the log and stores it. */
  readonly recordFork: (state: Forked, signal: AbortSignal) => Promise<void>;
  /** Called for each new fork. */
  readonly onFork: (state: Forked) => void;
}

export type Forked = NameState & { readonly rival: StoredRecord };

export class Adoption {
  readonly #init: AdoptionInit;
  readonly #forks = new TokenBucket('forks', { rate_per_s: FORKS_PER_S, burst: FORKS_BURST });

  constructor(init: AdoptionInit) {
    this.#init = init;
  }

  /** See `Names.adopt`. */
  async adopt(
    key: string,
    label: string,
    values: readonly Uint8Array[],
    signal: AbortSignal,
  ): Promise<StoredName | undefined> {
    const found = values.slice(0, VALUES_MAX).flatMap((value) => validValue(key, label, value) ?? []);
    return await this.#merge(key, label, found, signal);
  }

  /** See `Names.accepts`. */
  async accepts(key: string, label: string, value: Uint8Array, signal: AbortSignal): Promise<StoredRecord | undefined> {
    const found = validValue(key, label, value);
    if (found === undefined) return undefined;
    const current = await this.#merge(key, label, [found], signal);
    if (current === undefined) return undefined;
    // Of two records with one seq both are kept in the network, so that readers see the fork.
    return found.seq >= current.seq || isSame(found.hash, current.hash) ? found : undefined;
  }

  async #merge(
    key: string,
    label: string,
    found: readonly StoredRecord[],
    signal: AbortSignal,
  ): Promise<StoredName | undefined> {
    for (let attempt = 1; ; attempt += 1) {
      const known = await this.#init.store.name(key, label);
      const state = await this.#stateWith(key, label, known, found);
      if (state === undefined || isUnchanged(known, state)) return known;
      const { isOwn, dropped } = known ?? { isOwn: false, dropped: 0 };
      const isSaved = await this.#save(state, known, isOwn || this.#init.isTrusted(key), signal);
      if (isSaved || attempt === SWAPS_MAX) return { ...state.record, rival: state.rival, isOwn, dropped };
    }
  }

  async #stateWith(
    key: string,
    label: string,
    known: StoredName | undefined,
    found: readonly StoredRecord[],
  ): Promise<NameState | undefined> {
    const { store } = this.#init;
    // The record may be gone, but its seq is not.
    const highest = known === undefined && found.length > 0 ? await store.highestSeq(key, label) : undefined;
    const isOlder = known !== undefined && found.some((each) => each.seq < known.seq);
    const past = isOlder ? await store.history(key, label, HISTORY_MAX) : [];
    const isOwn = known?.isOwn ?? false;
    let state: NameState | undefined = known && { record: known, rival: known.rival };
    for (const each of found) {
      if (highest !== undefined && each.seq < highest.seq && !isMove(each)) continue;
      if (state !== undefined) past.push(state.record);
      state = mergeRecord(state, each, { past, isOwn });
    }
    return state;
  }

  /** False if the stored record changed meanwhile. */
  async #save(
    { record, rival }: NameState,
    known: StoredName | undefined,
    isTrusted: boolean,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { store, onFork } = this.#init;
    if (rival !== undefined && isTrusted && this.#forks.tryTake()) {
      try {
        await this.#init.recordFork({ record, rival }, signal);
        onFork({ record, rival });
        return true;
      } catch (error) {
        // The log is damaged, full or busy.
        if (signal.aborted || !isRonError(error)) throw error;
      }
    }
    // Stored even if the log cannot take the fork, so that a replay of an older record stays refused.
    const isSaved = await store.saveSeen(record, rival, { isTrusted, replaces: known?.hash });
    if (isSaved && rival !== undefined) onFork({ record, rival });
    return isSaved;
  }
}

/** The record in a value of the network; undefined unless it is valid now. */
function validValue(key: string, label: string, value: Uint8Array): StoredRecord | undefined {
  const signed = verifyValue(key, label, value);
  if (signed === undefined) return undefined;
  const problem = notAfterProblem(signed.fields.not_after, Math.floor(sched.wall_ms() / 1000));
  return problem === undefined ? signed.stored : undefined;
}

function isUnchanged(known: StoredName | undefined, { record, rival }: NameState): boolean {
  if (known === undefined || !isSame(known.hash, record.hash)) return false;
  if (known.rival === undefined || rival === undefined) return known.rival === rival;
  return isSame(known.rival.hash, rival.hash);
}
