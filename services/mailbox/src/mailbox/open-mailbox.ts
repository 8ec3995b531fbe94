/** Opens the parts of a mailbox: replays the log into the state, then connects the operations with both. */
import { NEVER, sched } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import { formatUlid } from '@ron/proto';
import type { MailboxEvent } from '../events.ts';
import { MailboxState } from '../queue/mailbox-state.ts';
import { SEEN_LIMITS, SeenKeys } from '../queue/seen-keys.ts';
import { MailboxLog, type ReplayProgress, type StoreEvent } from '../store/mailbox-log.ts';
import { AgeClock } from './age-clock.ts';
import { BackgroundWrites } from './background-writes.ts';
import { DamagedMessages } from './dead/damaged-messages.ts';
import { DeadLetters } from './dead/dead-letters.ts';
import { LastErrors } from './settle/last-errors.ts';
import { LeaseClock } from './tasks/lease-clock.ts';
import { LiveView } from './live-view.ts';
import { MessageReads } from './receive/message-reads.ts';
import { Policies, type PolicyConfig } from './topics/policy.ts';
import { Deliveries, type Taken, type Wanted } from './receive/deliveries.ts';
import { Receivers } from './receive/receivers.ts';
import { StateTarget, type StateTargetInit } from './state-target.ts';
import { Retention } from './tasks/retention.ts';
import { Sends } from './send/sends.ts';
import { Settles } from './settle/settles.ts';
import { SettledEvents } from './settle/settled-events.ts';
import { Settling } from './settle/settling.ts';
import { Topics } from './topics/topics.ts';

/** Keyed messages that a step of the start links. */
const LOAD_STEP = 1024;

export interface MailboxInit {
  /** The data directory. */
  readonly dir: string;
  /** Default: the real one. */
  readonly fs?: FileSystem;
  readonly segment_bytes: number;
  /** log2 of the rows of a page of the tables. Models use small pages. Default: as in the tables. */
  readonly page_bits?: number;
  /** The configuration in force. */
  readonly config: { readonly value: PolicyConfig & { readonly mailbox: { readonly auto_topics: boolean } } };
  /** Receivers that may wait. */
  readonly holds_max: number;
  readonly onEvent: (event: MailboxEvent) => void;
  readonly onProgress?: (progress: ReplayProgress) => void;
  /** Called for each message that was found to be damaged, and for a ledger that does not balance. */
  readonly onIntegrity?: (reason: 'damaged' | 'ledger') => void;
  readonly signal: AbortSignal;
}

/** The state, before the log is open. */
function newState(init: MailboxInit) {
  const { page_bits } = init;
  const state = new MailboxState(page_bits);
  const topics = new Topics({ state, policies: new Policies(init.config) });
  const background = new BackgroundWrites();
  return {
    state,
    seen: new SeenKeys(SEEN_LIMITS, page_bits),
    topics,
    errors: new LastErrors(),
    ages: new AgeClock(),
    background,
  };
}

/** Calls of the log's target, which exist once the log is open. A replay makes none of them. */
type LateCalls = Pick<StateTargetInit, 'onSettlement' | 'onChanged'>;
const NO_CALLS: LateCalls = { onSettlement: () => undefined, onChanged: () => undefined };

export type MailboxParts = Awaited<ReturnType<typeof openMailboxParts>>;

export async function openMailboxParts(init: MailboxInit) {
  const prepared = prepare(init);
  const { state, target } = prepared;
  const log = await openLog(init, target);
  prepared.ages.start(log.newest_ms);
  state.last_seq = Math.max(state.last_seq, log.segments.durable.seq);
  while (!state.finishLoad(LOAD_STEP)) await sched.pause('mailbox.load');
  target.goLive();
  return connect(init, { ...prepared, log });
}

/** The state and its target, before the log is open. Synchronous. */
export function prepare(init: MailboxInit) {
  const base = newState(init);
  const late = { calls: NO_CALLS };
  const onChanged = (changed: ReadonlySet<string>): void => late.calls.onChanged(changed);
  const settling = new Settling({ state: base.state, onUndone: onChanged });
  const target = new StateTarget({
    ...base,
    settling,
    onTopicCreated: (topic) => init.onEvent({ kind: 'topic created', topic }),
    onSettlement: (topic, settlement) => late.calls.onSettlement(topic, settlement),
    onChanged,
  });
  return { ...base, settling, target, late };
}

async function openLog(init: MailboxInit, target: StateTarget): Promise<MailboxLog> {
  const { dir, fs, segment_bytes, onProgress, signal } = init;
  return await MailboxLog.open({
    dir,
    ...(fs && { fs }),
    segment_bytes,
    target,
    ...(onProgress && { onProgress }),
    onEvent: (event) => onStoreEvent(init, event),
    signal,
  });
}

function onStoreEvent({ onEvent, onIntegrity }: MailboxInit, event: StoreEvent): void {
  if (event.kind === 'damage') return onEvent({ kind: 'log damaged', problem: event.problem });
  if (event.kind === 'message damaged') {
    onIntegrity?.('damaged');
    return onEvent({ ...event, id: formatUlid(event.id) });
  }
  if (event.kind !== 'ledger broken' && event.kind !== 'ledger accepted') return onEvent(event);
  if (event.kind === 'ledger broken') onIntegrity?.('ledger');
  onEvent({ kind: event.kind, problem: event.problem.text });
}

type Opened = ReturnType<typeof prepare> & { readonly log: MailboxLog };

/** Connects the operations with the state and the log. Synchronous. */
export function connect(init: MailboxInit, opened: Opened) {
  const { state, log, background } = opened;
  const { onEvent, onIntegrity } = init;
  const appendSettled: MailboxLog['appendSettled'] = (entries, signal) => log.appendSettled(entries, signal);
  const appendLeased: MailboxLog['appendLeased'] = (entries, signal) => log.appendLeased(entries, signal);
  const onVisible = (topic: string): void => receivers.serve(topic);
  const onDue = (due_ms: number): void => clock.onDue(due_ms);
  const common = { ...opened, appendSettled, appendLeased, onVisible, onDue, onEvent };
  const reads = new MessageReads(state, log);
  const damaged = new DamagedMessages(common);
  const deliveries = new Deliveries({
    ...common,
    reads,
    onLeased: onDue,
    onDamaged: (seq) => background.run(() => damaged.makeDead(seq, NEVER)),
    onUnreadable: (seq) => opened.errors.set(seq, 'the disk could not read the message'),
    writeLater: (entries) => background.run(() => log.appendLeased(entries, NEVER)),
  });
  const receivers = new Receivers<Wanted, Taken>({
    capacity: init.holds_max,
    take: (topic, wanted) => deliveries.take(topic, wanted),
  });
  const clock = new LeaseClock(common);
  const sends = new Sends({
    ...common,
    append: (messages, signal) => log.appendMessages(messages, signal),
    mayCreateTopics: () => init.config.value.mailbox.auto_topics,
    onFull: (topic, problem) => onEvent({ kind: 'topic full', topic: topic.name, problem }),
  });
  const settled = new SettledEvents({ reads, background, onEvent, onDamaged: () => onIntegrity?.('damaged') });
  opened.late.calls = {
    onSettlement: (topic, settlement) => settled.onSettlement(topic, settlement),
    onChanged: (changed) => {
      settled.publish();
      for (const topic of changed) receivers.serve(topic);
      clock.onDue(state.nextDueMs() ?? Infinity);
    },
  };
  return {
    ...opened,
    reads,
    deliveries,
    receivers,
    clock,
    sends,
    settles: new Settles({ ...common, appendReturned: (entries, signal) => log.appendReturned(entries, signal) }),
    retention: new Retention({ ...common, reads, probeDisk: (signal) => log.probe(signal) }),
    dead: new DeadLetters({ ...common, reads }),
    live: new LiveView({ ...common, damaged: (seq, signal) => damaged.makeDead(seq, signal) }),
  };
}
