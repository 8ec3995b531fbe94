import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  transition,
  VolumeLifecycle,
  type Duty,
  type Freshness,
  type LifecycleEvent,
  type LifecycleState,
} from './volume-lifecycle.ts';

const DUTIES: readonly Duty[] = ['active', 'draining', 'drained'];
const FRESHNESSES: readonly Freshness[] = ['joining', 'diverged', 'adopted', 'stale', 'unverified', 'current'];
const EVENTS: readonly LifecycleEvent[] = [
  { type: 'open' },
  { type: 'opened', duty: 'active' },
  { type: 'opened', duty: 'draining' },
  { type: 'openFailed', reason: 'new' },
  { type: 'delayed', reason: 'new' },
  { type: 'lose', reason: 'new' },
  { type: 'abandon', reason: 'new' },
  { type: 'restore' },
  { type: 'drain' },
  { type: 'undrain' },
  { type: 'emptied' },
  { type: 'recheck' },
  { type: 'recognize', isVerified: true },
  { type: 'recognize', isVerified: false },
  { type: 'diverge' },
  { type: 'adopt' },
  { type: 'admit' },
  { type: 'strike' },
  { type: 'remove' },
  { type: 'removalFailed' },
  { type: 'removed' },
];

const open = (duty: Duty, freshness: Freshness): LifecycleState & { kind: 'open' } => ({
  kind: 'open',
  session: 3,
  duty,
  freshness,
});
const OPEN = DUTIES.flatMap((duty) => FRESHNESSES.map((freshness) => open(duty, freshness)));
const CLOSED = [
  { kind: 'absent', reason: 'old' },
  { kind: 'opening', reason: 'old' },
  { kind: 'opening', reason: undefined },
  { kind: 'abandoned', reason: 'old' },
] as const;

const nameOf = (event: LifecycleEvent): string =>
  `${event.type}${'duty' in event ? ` ${event.duty}` : ''}${'isVerified' in event ? ` ${event.isVerified}` : ''}`;

/** Every pair of state and event that is not listed here changes nothing. */
const FROM_CLOSED: Record<string, Record<string, LifecycleState | ((reason: string | undefined) => LifecycleState)>> = {
  absent: {
    open: (reason) => ({ kind: 'opening', reason }),
    lose: { kind: 'absent', reason: 'new' },
    abandon: { kind: 'abandoned', reason: 'new' },
  },
  opening: {
    'opened active': { ...open('active', 'joining'), session: 0 },
    'opened draining': { ...open('draining', 'joining'), session: 0 },
    openFailed: { kind: 'absent', reason: 'new' },
    delayed: { kind: 'opening', reason: 'new' },
    abandon: { kind: 'abandoned', reason: 'new' },
  },
  abandoned: {
    abandon: { kind: 'abandoned', reason: 'new' },
    restore: (reason) => ({ kind: 'absent', reason: reason! }),
  },
};
const FROM_DUTY: Record<string, Partial<Record<Duty, Duty>>> = {
  drain: { active: 'draining' },
  undrain: { draining: 'active', drained: 'active' },
  emptied: { draining: 'drained' },
  recheck: { drained: 'draining' },
};
const BECOMES = (to: Freshness, from: readonly Freshness[]): Partial<Record<Freshness, Freshness>> =>
  Object.fromEntries(from.map((each) => [each, to]));
const NOT_CURRENT = FRESHNESSES.filter((each) => each !== 'current');
const FROM_FRESHNESS: Record<string, Partial<Record<Freshness, Freshness>>> = {
  'recognize true': BECOMES('current', NOT_CURRENT),
  'recognize false': BECOMES('unverified', NOT_CURRENT),
  diverge: { joining: 'diverged' },
  adopt: { diverged: 'adopted' },
  admit: BECOMES('current', NOT_CURRENT),
  strike: { current: 'stale', unverified: 'stale' },
};

type Kept = (typeof CLOSED)[number] | ReturnType<typeof open>;

/** The state after an event that is not part of a removal. */
function expected(state: Kept, event: LifecycleEvent): LifecycleState | undefined {
  const name = nameOf(event);
  if (state.kind !== 'open') {
    const next = FROM_CLOSED[state.kind]?.[name];
    return typeof next === 'function' ? next(state.reason) : next;
  }
  if (name === 'lose') return { kind: 'absent', reason: 'new' };
  if (name === 'abandon') return { kind: 'abandoned', reason: 'new' };
  const duty = FROM_DUTY[name]?.[state.duty];
  const freshness = FROM_FRESHNESS[name]?.[state.freshness];
  return duty === undefined && freshness === undefined
    ? undefined
    : { ...state, ...(duty && { duty }), ...(freshness && { freshness }) };
}

const isRemoval = ({ type }: LifecycleEvent): boolean =>
  type === 'remove' || type === 'removalFailed' || type === 'removed';

test('every event takes every state to the listed state, and changes nothing where none is listed', () => {
  for (const state of [...CLOSED, ...OPEN]) {
    for (const event of EVENTS.filter((each) => !isRemoval(each))) {
      assert.deepEqual(transition(state, event), expected(state, event), `${JSON.stringify(state)} ${nameOf(event)}`);
    }
  }
});

test('a volume can be removed in every state, and a removal that fails returns to the state before', () => {
  for (const state of [...CLOSED, ...OPEN]) {
    const removing = transition(state, { type: 'remove' });
    assert.deepEqual(removing, { kind: 'removing', from: state });
    assert.deepEqual(transition(removing, { type: 'removalFailed' }), state);
    assert.deepEqual(transition(removing, { type: 'removed' }), { kind: 'removed' });
    assert.deepEqual(transition(state, { type: 'removed' }), { kind: 'removed' });
    assert.equal(transition(state, { type: 'removalFailed' }), undefined);
    assert.equal(transition(removing, { type: 'remove' }), undefined);
  }
});

test('while it is removed, a volume cannot be opened, and every other event applies to the state before', () => {
  for (const state of [...CLOSED, ...OPEN]) {
    for (const event of EVENTS.filter((each) => !isRemoval(each))) {
      const isOpening = event.type === 'open' || event.type === 'opened';
      const from = isOpening ? undefined : expected(state, event);
      const next = transition({ kind: 'removing', from: state }, event);
      assert.deepEqual(next, from && { kind: 'removing', from }, `${JSON.stringify(state)} ${nameOf(event)}`);
    }
  }
});

test('a removed volume stays removed', () => {
  for (const event of EVENTS) assert.equal(transition({ kind: 'removed' }, event), undefined);
});

test('each opening is a session of its own', () => {
  const lifecycle = VolumeLifecycle.opening();
  assert.ok(lifecycle.apply({ type: 'opened', duty: 'active' }));
  const first = lifecycle.open!.session;
  assert.ok(!lifecycle.apply({ type: 'strike' }), 'it has to be recognized first');
  assert.ok(lifecycle.apply({ type: 'lose', reason: 'unplugged' }));
  assert.deepEqual([lifecycle.open, lifecycle.reason], [undefined, 'unplugged']);
  assert.ok(lifecycle.apply({ type: 'open' }) && lifecycle.apply({ type: 'opened', duty: 'draining' }));
  assert.notEqual(lifecycle.open!.session, first);
});

test('an open volume that is being removed is still open', () => {
  const lifecycle = VolumeLifecycle.opening();
  lifecycle.apply({ type: 'opened', duty: 'active' });
  lifecycle.apply({ type: 'remove' });
  assert.equal(lifecycle.open?.duty, 'active');
  lifecycle.apply({ type: 'removed' });
  assert.deepEqual([lifecycle.open, lifecycle.reason], [undefined, undefined]);
});
