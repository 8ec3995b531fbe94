/**
 * The life of a volume: one tagged state and one transition table. Every reader uses this state; there is no second flag.
 *
 *     opening --opened--> open --lose--> absent --open--> opening
 *     opening --openFailed--> absent      absent | opening | open --abandon--> abandoned --restore--> absent
 *     any of them --remove--> removing --removed--> removed,   removing --removalFailed--> the state before
 *
 * An open volume has a duty and a freshness, which change independently:
 *
 *     active --drain--> draining --emptied--> drained --recheck--> draining      draining | drained --undrain--> active
 *
 *     joining --diverge--> diverged --adopt--> adopted --admit--> current --strike--> stale --admit--> current
 *     all but current --recognize--> current, or unverified when the volume lost records that it cannot name
 *     joining | diverged | unverified --admit--> current      unverified --strike--> stale
 *
 * Contract: an event that the table does not list for the current state changes nothing, and `apply` returns false. While a
 * volume is being removed it stays readable if it was open, but it cannot be opened. A transition takes effect in the step in
 * which it is applied. Each opening has a session number, so that a member of an earlier opening is never taken for open.
 */

/** Active volumes take new records. Draining ones give theirs away. Every record of a drained one is stored elsewhere. */
export type Duty = 'active' | 'draining' | 'drained';

/**
 * Whether the volume has every decision about objects.
 * - `joining`: its notes have not been compared with those of the set
 * - `diverged`: it was used without the others; the operator has to adopt it
 * - `adopted`: the operator did; it is reconciled next
 * - `stale`: it missed a decision
 * - `unverified`: it missed no decision, but lost records that it cannot name
 * - `current`: its answers about objects and pins count
 */
export type Freshness = 'joining' | 'diverged' | 'adopted' | 'stale' | 'unverified' | 'current';

export interface OpenState {
  readonly kind: 'open';
  readonly session: number;
  readonly duty: Duty;
  readonly freshness: Freshness;
}

interface AbsentState {
  readonly kind: 'absent';
  readonly reason: string;
}

interface OpeningState {
  readonly kind: 'opening';
  /** Why it was absent before, or why it takes long; undefined for a volume that is opened for the first time. */
  readonly reason: string | undefined;
}

/** The operator gave it up: it stays closed until it is restored. */
interface AbandonedState {
  readonly kind: 'abandoned';
  readonly reason: string;
}

/** The states that a failed removal returns to. */
type KeptState = AbsentState | OpeningState | AbandonedState | OpenState;

interface RemovingState {
  readonly kind: 'removing';
  readonly from: KeptState;
}

export type LifecycleState = KeptState | RemovingState | { readonly kind: 'removed' };

/** Events about the volume of an open member. */
export type OpenEvent =
  | { readonly type: 'lose'; readonly reason: string }
  | { readonly type: 'drain' | 'undrain' | 'emptied' | 'recheck' }
  | { readonly type: 'recognize'; readonly isVerified: boolean }
  | { readonly type: 'diverge' | 'adopt' | 'admit' | 'strike' };

export type LifecycleEvent =
  | OpenEvent
  | { readonly type: 'open' | 'restore' | 'remove' | 'removalFailed' | 'removed' }
  | { readonly type: 'opened'; readonly duty: 'active' | 'draining' }
  | { readonly type: 'openFailed' | 'delayed' | 'abandon'; readonly reason: string };

type Kept = KeptState['kind'];
type EventOf<T extends LifecycleEvent['type']> = Extract<LifecycleEvent, { readonly type: T }>;
/** Undefined where the event does not apply. */
type Step<K extends Kept, T extends LifecycleEvent['type']> = (
  state: Extract<KeptState, { readonly kind: K }>,
  event: EventOf<T>,
) => KeptState | undefined;
type Removal = 'remove' | 'removalFailed' | 'removed';
type Table = {
  readonly [T in Exclude<LifecycleEvent['type'], Removal>]: { readonly [K in Kept]?: Step<K, T> };
};

const absent = (_: unknown, { reason }: { readonly reason: string }): KeptState => ({ kind: 'absent', reason });
const abandoned = (_: unknown, { reason }: { readonly reason: string }): KeptState => ({ kind: 'abandoned', reason });
const duty =
  (next: Partial<Record<Duty, Duty>>) =>
  (state: OpenState): OpenState | undefined =>
    next[state.duty] && { ...state, duty: next[state.duty]! };
const freshness =
  (next: Partial<Record<Freshness, Freshness>>) =>
  (state: OpenState): OpenState | undefined =>
    next[state.freshness] && { ...state, freshness: next[state.freshness]! };

const TABLE: Table = {
  open: { absent: ({ reason }) => ({ kind: 'opening', reason }) },
  opened: { opening: (_, event) => ({ kind: 'open', session: 0, duty: event.duty, freshness: 'joining' }) },
  openFailed: { opening: absent },
  delayed: { opening: (_, { reason }) => ({ kind: 'opening', reason }) },
  lose: { open: absent, absent },
  abandon: { absent: abandoned, opening: abandoned, open: abandoned, abandoned },
  restore: { abandoned: ({ reason }) => ({ kind: 'absent', reason }) },
  drain: { open: duty({ active: 'draining' }) },
  undrain: { open: duty({ draining: 'active', drained: 'active' }) },
  emptied: { open: duty({ draining: 'drained' }) },
  recheck: { open: duty({ drained: 'draining' }) },
  recognize: {
    open: (state, { isVerified }) =>
      state.freshness === 'current' ? undefined : { ...state, freshness: isVerified ? 'current' : 'unverified' },
  },
  diverge: { open: freshness({ joining: 'diverged' }) },
  adopt: { open: freshness({ diverged: 'adopted' }) },
  admit: {
    open: freshness({
      joining: 'current',
      diverged: 'current',
      adopted: 'current',
      stale: 'current',
      unverified: 'current',
    }),
  },
  strike: { open: freshness({ current: 'stale', unverified: 'stale' }) },
};

/** The state after an event; undefined when the event does not apply. */
export function transition(state: LifecycleState, event: LifecycleEvent): LifecycleState | undefined {
  if (state.kind === 'removed') return undefined;
  if (event.type === 'removed') return { kind: 'removed' };
  if (state.kind === 'removing') return whileRemoving(state, event);
  if (event.type === 'remove') return { kind: 'removing', from: state };
  return keep(state, event);
}

function whileRemoving({ from }: RemovingState, event: LifecycleEvent): LifecycleState | undefined {
  if (event.type === 'removalFailed') return from;
  if (event.type === 'open' || event.type === 'opened') return undefined;
  const next = keep(from, event);
  return next && { kind: 'removing', from: next };
}

function keep(state: KeptState, event: LifecycleEvent): KeptState | undefined {
  const steps = (TABLE as Partial<Record<string, Partial<Record<string, Step<Kept, LifecycleEvent['type']>>>>>)[
    event.type
  ];
  // The key of each step is the kind of the state that it takes.
  return steps?.[state.kind]?.(state, event);
}

export class VolumeLifecycle {
  #state: LifecycleState;
  #sessions = 0;

  private constructor(state: LifecycleState) {
    this.#state = state;
  }

  /** Of a volume that is about to be opened. */
  static opening(): VolumeLifecycle {
    return new VolumeLifecycle({ kind: 'opening', reason: undefined });
  }

  static absent(reason: string): VolumeLifecycle {
    return new VolumeLifecycle({ kind: 'absent', reason });
  }

  get state(): LifecycleState {
    return this.#state;
  }

  /** The state of the open volume, even while it is being removed; undefined when it is not open. */
  get open(): OpenState | undefined {
    const state = this.#kept;
    return state?.kind === 'open' ? state : undefined;
  }

  /** Why it is not open, as far as that is known. */
  get reason(): string | undefined {
    const state = this.#kept;
    return state === undefined || state.kind === 'open' ? undefined : state.reason;
  }

  /** False when the event does not apply to the current state. */
  apply(event: LifecycleEvent): boolean {
    const next = transition(this.#state, event);
    if (next === undefined) return false;
    this.#state = event.type === 'opened' && next.kind === 'open' ? { ...next, session: ++this.#sessions } : next;
    return true;
  }

  get #kept(): KeptState | undefined {
    if (this.#state.kind === 'removed') return undefined;
    return this.#state.kind === 'removing' ? this.#state.from : this.#state;
  }
}
