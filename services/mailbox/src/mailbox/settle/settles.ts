/**
 * Acks, nacks and extends.
 *
 * Contract: each token gets `ok`, `stale` or `unknown`. An ack resolves after its sync. A token whose message is settling waits
 * for that sync: a repeated call gets the result of the first one, or is executed itself if the first one failed. A nack
 * and an extend take effect in RAM at once and resolve when they are written.
 * Bound: 128 tokens of a call. Cancellation: as in `settling.ts`.
 */
import { orAborted, sched } from '@ron/kernel';
import type { NackRequest, TokenResult } from '@ron/proto';
import type { MailboxState } from '../../queue/mailbox-state.ts';
import { STATE, type Slot, type TokenParts } from '../../queue/states.ts';
import type { LeaseEntry, ReturnEntry, SettledEntry } from '../../store/records.ts';
import type { AgeClock } from '../age-clock.ts';
import { backoff_ms } from './backoff.ts';
import { deadEntry } from '../dead/dead-entry.ts';
import type { LastErrors } from './last-errors.ts';
import type { Settlement, Settling } from './settling.ts';
import { decodeToken } from '../receive/token.ts';
import type { TokenOp } from '../topics/topic-counts.ts';
import type { Topic, Topics } from '../topics/topics.ts';

export interface SettlesInit {
  readonly ages: AgeClock;
  readonly state: MailboxState;
  readonly topics: Topics;
  readonly settling: Settling;
  readonly errors: LastErrors;
  readonly appendSettled: (entries: readonly SettledEntry[], signal: AbortSignal) => Promise<unknown>;
  readonly appendReturned: (entries: readonly ReturnEntry[], signal: AbortSignal) => Promise<void>;
  readonly appendLeased: (entries: readonly LeaseEntry[], signal: AbortSignal) => Promise<void>;
  readonly onDue: (due_ms: number) => void;
  readonly onVisible: (topic: string) => void;
}

/** A call for the tokens of one topic. */
interface Call {
  readonly topic: Topic;
  readonly op: TokenOp;
  readonly tokens: readonly (TokenParts | undefined)[];
  readonly results: TokenResult[];
  readonly signal: AbortSignal;
}

/** Executes the call for a message that is not settling; in a synchronous step. */
type Act = (slot: Slot, seq: number) => void;

export class Settles {
  readonly #init: SettlesInit;

  constructor(init: SettlesInit) {
    this.#init = init;
  }

  async ack(name: string, tokens: readonly string[], signal: AbortSignal): Promise<readonly TokenResult[]> {
    const call = this.#call(name, 'ack', tokens, signal);
    if (call === undefined) return tokens.map(() => 'unknown');
    return await this.#execute(call, (acts) => {
      const settlements: Settlement[] = [];
      acts((_slot, seq) => {
        settlements.push(this.#init.settling.begin({ outcome: 'acked', seq, topic: name }, 'ack'));
      });
      return this.#commit(settlements, signal);
    });
  }

  async nack(
    name: string,
    tokens: readonly string[],
    how: NackRequest,
    signal: AbortSignal,
  ): Promise<readonly TokenResult[]> {
    const call = this.#call(name, 'nack', tokens, signal);
    if (call === undefined) return tokens.map(() => 'unknown');
    const { topic } = call;
    return await this.#execute(call, (acts) => {
      const settlements: Settlement[] = [];
      const returned: ReturnEntry[] = [];
      acts((slot, seq) => {
        const dead = this.#deadEntry(topic, slot, how);
        if (dead === undefined) returned.push(this.#return(topic, slot, seq, how));
        else settlements.push(this.#init.settling.begin(dead, 'nack'));
      });
      if (returned.length > 0) this.#init.onVisible(name);
      const written = returned.length > 0 ? this.#init.appendReturned(returned, signal) : undefined;
      return Promise.all([this.#commit(settlements, signal), written]);
    });
  }

  async extend(
    name: string,
    tokens: readonly string[],
    visibility_ms: number,
    signal: AbortSignal,
  ): Promise<readonly TokenResult[]> {
    const call = this.#call(name, 'extend', tokens, signal);
    if (call === undefined) return tokens.map(() => 'unknown');
    return await this.#execute(call, (acts) => {
      const leases: LeaseEntry[] = [];
      acts((slot, seq) => void leases.push(this.#extend(slot, seq, visibility_ms)));
      return leases.length > 0 ? this.#init.appendLeased(leases, signal) : undefined;
    });
  }

  #call(name: string, op: TokenOp, tokens: readonly string[], signal: AbortSignal): Call | undefined {
    const topic = this.#init.topics.find(name);
    if (topic === undefined) return undefined;
    const parts = tokens.map((token) => decodeToken(token, topic.tag));
    return { topic, op, tokens: parts, results: Array.from({ length: tokens.length }), signal };
  }

  /** Repeats the call for the tokens whose message was settling, until each has a result. */
  async #execute(
    call: Call,
    step: (acts: (act: Act) => void) => Promise<unknown> | undefined,
  ): Promise<readonly TokenResult[]> {
    let left: readonly number[] = call.tokens.map((_, index) => index);
    while (left.length > 0) {
      const waits: [number, Settlement][] = [];
      await step((act) => this.#check(call, left, waits, act));
      const again: number[] = [];
      for (const [index, settlement] of waits) {
        await orAborted(settlement.ended(), call.signal);
        if (settlement.isApplied && settlement.by === call.op) call.results[index] = 'ok';
        else again.push(index);
      }
      left = again;
    }
    return call.results;
  }

  /** Gives a result to each token or executes `act` for it; `waits` gets those whose message is settling. */
  #check(call: Call, left: readonly number[], waits: [number, Settlement][], act: Act): void {
    const { topic, op, tokens, results } = call;
    for (const index of left) {
      const token = tokens[index];
      // [mailbox I-5]
      const slot = token === undefined ? 'unknown' : this.#init.state.check(topic.state, token);
      if (typeof slot === 'string') {
        if (slot === 'stale') topic.counts.stale[op] += 1;
        results[index] = slot;
        continue;
      }
      const settlement = this.#init.state.isSettling(slot) ? this.#init.settling.of(token!.seq) : undefined;
      if (settlement !== undefined) {
        waits.push([index, settlement]);
        continue;
      }
      act(slot, token!.seq);
      results[index] = 'ok';
    }
  }

  async #commit(settlements: readonly Settlement[], signal: AbortSignal): Promise<void> {
    const append = () =>
      this.#init.appendSettled(
        settlements.map(({ entry }) => entry),
        signal,
      );
    await this.#init.settling.commit(settlements, append);
  }

  /** [mailbox I-7] The dead letter that a nack makes; undefined if the message is delivered again. */
  #deadEntry(topic: Topic, slot: Slot, { dead, error }: NackRequest): SettledEntry | undefined {
    if (dead === true) return deadEntry(this.#init, slot, 'nacked', error);
    const { attempts } = this.#init.state.view(slot);
    if (attempts < this.#init.topics.policyOf(topic).max_deliveries) return undefined;
    return deadEntry(this.#init, slot, 'max_deliveries', error);
  }

  #return(topic: Topic, slot: Slot, seq: number, { delay_ms, error }: NackRequest): ReturnEntry {
    const { state, errors } = this.#init;
    const { attempts, delivery } = state.view(slot);
    const wait_ms = delay_ms ?? backoff_ms(attempts);
    const due_ms = sched.now_ms() + wait_ms;
    // A repeated nack moves the time of the next delivery; it does not end another one.
    if (state.stateOf(slot) === STATE.leased) topic.counts.settled.nacked += 1;
    state.release(slot, wait_ms > 0 ? due_ms : undefined);
    if (wait_ms > 0) this.#init.onDue(due_ms);
    errors.set(seq, error);
    const not_before_ms = wait_ms > 0 ? Math.ceil(sched.wall_ms() + wait_ms) : 0;
    return { seq, delivery, not_before_ms, delay_ms: Math.ceil(wait_ms), error };
  }

  #extend(slot: Slot, seq: number, visibility_ms: number): LeaseEntry {
    const { state } = this.#init;
    const { delivery, attempts, nonce } = state.view(slot);
    const due_ms = sched.now_ms() + visibility_ms;
    state.extend(slot, due_ms);
    this.#init.onDue(due_ms);
    return { seq, delivery, attempts, nonce, until_ms: sched.wall_ms() + visibility_ms, visibility_ms };
  }
}
