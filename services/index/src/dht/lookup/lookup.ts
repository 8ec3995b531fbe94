/**
 * One iterative Kademlia lookup: queries the peers closest to a target until the result is satisfactory.
 *
 * Contract: at most `alpha` requests are under way. When `hedge_ms` have passed without progress (a result or a closer
 * peer) and a request is that old, `beta` further peers are queried, and the oldest requests no longer count towards
 * `alpha`. With `alpha` above 1, one request goes to a peer of the own routing table while one is left. A request that stalls
 * is replaced by the next peer, and its answer is still used. No peer is queried twice. The lookup ends once `isSatisfied`,
 * once the closest peers have answered or failed, or when the signal aborts; without a result it waits for stalled peers,
 * unless as many as store a record have answered. At the end it cancels all requests, and ignores answers that arrive later.
 * It rejects only if a callback throws.
 * Bound: `REQUESTS_MAX` requests, `SHORTLIST_MAX` candidates, `CLOSER_MAX` peers read from an answer, one timer.
 * Overflow: without hedge budget the lookup goes on with the requests that it has.
 * Cancellation: by the signal; requests receive a signal that aborts when the lookup ends.
 */
import { onAbort, RonError, sched, touch, type Parked, type RetryBudget, type Timer } from '@ron/kernel';
import { CLOSER_MAX, type PeerRef } from '../peers.ts';
import { Shortlist, type Candidate } from './shortlist.ts';

export const REQUESTS_MAX = 64;

export interface LookupLimits {
  readonly alpha: number;
  readonly beta: number;
  readonly hedge_ms: number;
}

export interface SendInit {
  readonly signal: AbortSignal;
  /** Called when a try failed and the request is to be retried: other peers are queried meanwhile. */
  readonly onTryFailed: () => void;
  /** Called at most once, when the answer is overdue: other peers are queried meanwhile. */
  readonly onStalled?: (() => void) | undefined;
}

export interface Contribution {
  readonly isResult: boolean;
  readonly closer: readonly PeerRef[];
}

export interface LookupEvents {
  onStarted?(peer: PeerRef, wave: Wave): void;
  /** `error` is undefined for an answer. Not called for requests that the end of the lookup cancels. */
  onEnded?(peer: PeerRef, wave: Wave, error: unknown): void;
  /** The answer of the peer is overdue. */
  onStalled?(peer: PeerRef): void;
  /** The breaker of the peer is open. */
  onRefused?(peer: PeerRef): void;
  onHedge?(result: 'started' | 'won' | 'refused'): void;
}

export type Wave = 'alpha' | 'beta';

export interface LookupInit<A> {
  /** The position of the key. */
  readonly target: Uint8Array;
  readonly self: string;
  readonly seeds: readonly PeerRef[];
  readonly limits: LookupLimits;
  readonly budget: RetryBudget;
  /** False while the breaker of the peer is open: it is skipped, and takes neither a slot nor a hedge. */
  readonly isOpenTo: (peer: PeerRef) => boolean;
  readonly send: (peer: PeerRef, init: SendInit) => Promise<A>;
  /** Reads the records that this node keeps itself. Default none. */
  readonly readOwn?: (signal: AbortSignal) => Promise<A>;
  readonly onAnswer: (peer: string, answer: A) => Contribution;
  readonly isSatisfied: () => boolean;
  readonly events?: LookupEvents;
}

export interface LookupEnd {
  readonly reason: 'satisfied' | 'exhausted' | 'aborted';
  readonly answered: number;
  readonly failed: number;
  /** Peers that stalled and did not answer later; those that failed later count as failed, too. */
  readonly silent: number;
  /** Peers whose breaker was open. */
  readonly refused: number;
  readonly requests: number;
  /** The distance in hops of the answer that brought the last result; of the farthest answer if there was none. */
  readonly hops: number;
  /** The closest peers that answered, the closest first. */
  readonly closest: readonly PeerRef[];
  /** All candidates that neither failed nor stall, the closest first. */
  readonly seen: readonly PeerRef[];
}

interface Request {
  readonly candidate: Candidate;
  readonly wave: Wave;
  readonly started_ms: number;
  /** Whether it counts towards `alpha`. */
  isHolding: boolean;
}

const HEDGE_OP = 'dht_lookup';

const isHolding = (request: Request): boolean => request.isHolding;
const isLive = ({ candidate }: Request): boolean => candidate.state !== 'stalled';

export class Lookup<A> {
  readonly #init: LookupInit<A>;
  readonly #list: Shortlist;
  readonly #running = new Set<Request>();
  readonly #cancel = new AbortController();
  readonly #parked: Parked<LookupEnd>;
  #registration: Disposable | undefined;
  #timer: Timer | undefined;
  #quietSince_ms = sched.now_ms();
  #isReadingOwn = false;
  #isEnded = false;
  #answered = 0;
  #failed = 0;
  #silent = 0;
  #refused = 0;
  #requests = 0;
  #hops = 0;
  #resultHops: number | undefined;

  constructor(init: LookupInit<A>) {
    this.#init = init;
    this.#list = new Shortlist(init.target, init.self);
    this.#parked = sched.park<LookupEnd>('dht lookup');
    for (const seed of init.seeds) this.#list.add(seed);
  }

  run(signal: AbortSignal): Promise<LookupEnd> {
    this.#registration = onAbort(signal, () => this.#end('aborted'));
    this.#readOwn();
    this.#pump();
    return this.#parked.promise;
  }

  #readOwn(): void {
    const { readOwn, self } = this.#init;
    if (this.#isEnded || readOwn === undefined) return;
    this.#isReadingOwn = true;
    readOwn(this.#cancel.signal)
      .then(
        (answer) => this.#onOwn(() => void this.#contribute(self, answer, undefined)),
        () => this.#onOwn(() => undefined),
      )
      .catch((error: unknown) => this.#fail(error));
  }

  #onOwn(use: () => void): void {
    touch(this);
    if (this.#isEnded) return;
    this.#isReadingOwn = false;
    use();
    this.#pump();
  }

  /** Starts requests up to `alpha`, and ends the lookup if there is nothing left to wait for. */
  #pump(): void {
    if (this.#isEnded) return;
    if (this.#init.isSatisfied()) return this.#end('satisfied');
    for (let holding = this.#count(isHolding); holding < this.#init.limits.alpha; holding += 1) {
      const candidate = this.#next();
      if (candidate === undefined) break;
      this.#init.budget.onCall(HEDGE_OP);
      this.#start(candidate, 'alpha');
    }
    if (this.#isDone() && !this.#isReadingOwn) return this.#end('exhausted');
    this.#setTimer(this.#init.limits.hedge_ms);
  }

  /** Call it when no further request can be started. */
  #isDone(): boolean {
    if (this.#running.size === 0) return true;
    const live = this.#count(isLive);
    if (live > 0 && !this.#list.isExhausted) return false;
    // A peer that is only slow may have the result.
    const isWaiting = live < this.#running.size && this.#resultHops === undefined && !this.#list.isAnswered;
    return !isWaiting;
  }

  #next(): Candidate | undefined {
    if (this.#requests >= REQUESTS_MAX) return undefined;
    for (let next = this.#choose(); next !== undefined; next = this.#choose()) {
      if (this.#init.isOpenTo(next.peer)) return next;
      next.state = 'failed';
      this.#refused += 1;
      this.#init.events?.onRefused?.(next.peer);
    }
    return undefined;
  }

  /** One slot is for peers of the own routing table: a peer close to the key could name others without end. */
  #choose(): Candidate | undefined {
    if (this.#init.limits.alpha === 1) return this.#list.next();
    for (const request of this.#running)
      if (request.isHolding && request.candidate.reporter === undefined) return this.#list.next();
    return this.#list.nextOwn() ?? this.#list.next();
  }

  #count(isCounted: (request: Request) => boolean): number {
    let count = 0;
    for (const request of this.#running) if (isCounted(request)) count += 1;
    return count;
  }

  #start(candidate: Candidate, wave: Wave): void {
    const request: Request = { candidate, wave, started_ms: sched.now_ms(), isHolding: true };
    candidate.state = 'querying';
    this.#running.add(request);
    this.#requests += 1;
    this.#init.events?.onStarted?.(candidate.peer, wave);
    const onTryFailed = (): void => {
      touch(this);
      request.isHolding = false;
      this.#pump();
    };
    const onStalled = (): void => this.#onStalled(request);
    this.#init
      .send(candidate.peer, { signal: this.#cancel.signal, onTryFailed, onStalled })
      .then(
        (answer) => this.#onAnswer(request, answer),
        (error: unknown) => this.#onFailure(request, error),
      )
      .catch((error: unknown) => this.#fail(error));
  }

  #onStalled(request: Request): void {
    touch(this);
    if (this.#isEnded || request.candidate.state !== 'querying') return;
    request.candidate.state = 'stalled';
    request.isHolding = false;
    this.#silent += 1;
    this.#init.events?.onStalled?.(request.candidate.peer);
    this.#pump();
  }

  #onAnswer(request: Request, answer: A): void {
    touch(this);
    if (this.#isEnded) return;
    const { candidate, wave } = request;
    if (candidate.state === 'stalled') this.#silent -= 1;
    candidate.state = 'answered';
    this.#running.delete(request);
    this.#answered += 1;
    this.#init.events?.onEnded?.(candidate.peer, wave, undefined);
    const isProgress = this.#contribute(candidate.peer.id, answer, candidate);
    if (isProgress && wave === 'beta') this.#init.events?.onHedge?.('won');
    this.#pump();
  }

  /** Returns whether the answer brought a result or a closer peer. */
  #contribute(peer: string, answer: A, from: Candidate | undefined): boolean {
    const { isResult, closer } = this.#init.onAnswer(peer, answer);
    const hop = from?.hop ?? 0;
    let isProgress = isResult;
    for (const next of closer.slice(0, CLOSER_MAX)) if (this.#list.add(next, from)) isProgress = true;
    this.#hops = Math.max(this.#hops, hop);
    if (isResult) this.#resultHops = hop;
    if (isProgress) this.#quietSince_ms = sched.now_ms();
    return isProgress;
  }

  #onFailure(request: Request, error: unknown): void {
    touch(this);
    if (this.#isEnded) return;
    request.candidate.state = 'failed';
    this.#running.delete(request);
    if (error instanceof RonError && error.code === 'breaker_open') this.#refused += 1;
    else this.#failed += 1;
    this.#init.events?.onEnded?.(request.candidate.peer, request.wave, error);
    this.#pump();
  }

  /** Without a peer or budget for a hedge it stops; the next answer or failure sets it again. */
  #onTimer(): void {
    touch(this);
    this.#timer = undefined;
    // If all requests stall, all peers have been queried.
    if (this.#isEnded || this.#count(isLive) === 0) return;
    const now_ms = sched.now_ms();
    const wait_ms = this.#hedgeDue_ms(now_ms) - now_ms;
    if (wait_ms > 0) return this.#setTimer(wait_ms);
    this.#quietSince_ms = now_ms;
    if (this.#hedge()) this.#setTimer(this.#init.limits.hedge_ms);
  }

  #setTimer(delay_ms: number): void {
    this.#timer ??= sched.timer(delay_ms, () => this.#onTimer(), 'dht hedge');
  }

  /** When both the lookup and its oldest request that does not stall have been quiet for `hedge_ms`. */
  #hedgeDue_ms(now_ms: number): number {
    let oldest_ms = now_ms;
    for (const request of this.#running) if (isLive(request)) oldest_ms = Math.min(oldest_ms, request.started_ms);
    return Math.max(oldest_ms, this.#quietSince_ms) + this.#init.limits.hedge_ms;
  }

  /** Returns whether a request was started. */
  #hedge(): boolean {
    const { limits, budget, events } = this.#init;
    let isStarted = false;
    for (let count = 0; count < limits.beta; count += 1) {
      const candidate = this.#next();
      if (candidate === undefined) break;
      if (!budget.trySpend(HEDGE_OP)) {
        events?.onHedge?.('refused');
        break;
      }
      events?.onHedge?.('started');
      this.#releaseOldest();
      this.#start(candidate, 'beta');
      isStarted = true;
    }
    return isStarted;
  }

  /** The oldest request that holds a slot frees it: the set keeps the order of the starts. */
  #releaseOldest(): void {
    for (const request of this.#running) {
      if (!request.isHolding) continue;
      request.isHolding = false;
      return;
    }
  }

  /** A callback threw, which is a defect: the caller gets the error instead of a lookup that never ends. */
  #fail(error: unknown): void {
    this.#cancelAll();
    this.#parked.fail(error);
  }

  #cancelAll(): void {
    this.#isEnded = true;
    this.#timer?.cancel();
    this.#registration?.[Symbol.dispose]();
    this.#cancel.abort(new RonError('canceled', 'the lookup has ended', { op: HEDGE_OP }));
  }

  #end(reason: LookupEnd['reason']): void {
    if (this.#isEnded) return;
    this.#cancelAll();
    this.#parked.wake({
      reason,
      answered: this.#answered,
      failed: this.#failed,
      silent: this.#silent,
      refused: this.#refused,
      requests: this.#requests,
      hops: this.#resultHops ?? this.#hops,
      closest: this.#list.closest().flatMap(({ peer, state }) => (state === 'answered' ? [peer] : [])),
      seen: this.#list.seen(),
    });
  }
}
