/**
 * Records the requests of one lookup for its receipt.
 *
 * Bound: `TRACED_MAX` requests. Overflow: later ones are not recorded; the counts of hedges are complete.
 */
import { isRonError, sched } from '@ron/kernel';
import type { ReceiptPeerDto } from '@ron/proto';
import type { LookupTrace } from '../dht.ts';
import type { LookupEvents, Wave } from './lookup.ts';
import type { PeerAnswer, PeerRef } from '../peers.ts';

export const TRACED_MAX = 128;

interface Traced {
  readonly wave: Wave;
  readonly started_ms: number;
  /** Tries that failed. */
  failures: number;
  hasStalled: boolean;
  providers: number;
  closer: number;
}

export class Tracer implements Required<LookupEvents> {
  readonly #trace: LookupTrace;
  readonly #began_ms = sched.now_ms();
  readonly #running = new Map<string, Traced>();

  constructor(trace: LookupTrace) {
    this.#trace = trace;
  }

  onStarted(peer: PeerRef, wave: Wave): void {
    this.#running.set(peer.id, {
      wave,
      started_ms: sched.now_ms(),
      failures: 0,
      hasStalled: false,
      providers: 0,
      closer: 0,
    });
  }

  /** A try of the request failed. */
  onTryFailed(peer: PeerRef): void {
    const traced = this.#running.get(peer.id);
    if (traced !== undefined) traced.failures += 1;
  }

  onAnswer(peer: PeerRef, { providers, closer }: PeerAnswer): void {
    const traced = this.#running.get(peer.id);
    if (traced !== undefined) Object.assign(traced, { providers: providers.length, closer: closer.length });
  }

  onStalled(peer: PeerRef): void {
    const traced = this.#running.get(peer.id);
    if (traced !== undefined) traced.hasStalled = true;
  }

  onEnded(peer: PeerRef, _wave: Wave, error: unknown): void {
    const outcome = outcomeOf(error);
    this.#record(peer.id, outcome, outcome === 'answered' ? 1 : 0);
  }

  onRefused(peer: PeerRef): void {
    this.onStarted(peer, 'alpha');
    this.#record(peer.id, 'breaker_open', 0);
  }

  onHedge(result: 'started' | 'won' | 'refused'): void {
    this.#trace[`hedges_${result}`] += 1;
  }

  /** The lookup has ended: all requests under way are canceled. Those that stalled count as timeouts. */
  end(): void {
    for (const [id, { hasStalled }] of this.#running) this.#record(id, hasStalled ? 'timeout' : 'canceled', 1);
  }

  #record(peer: string, outcome: ReceiptPeerDto['outcome'], lastTry: 0 | 1): void {
    const traced = this.#running.get(peer);
    this.#running.delete(peer);
    if (traced === undefined || this.#trace.peers.length >= TRACED_MAX) return;
    const { wave, failures, providers, closer } = traced;
    const tries = failures + lastTry;
    const started_ms = Math.round(traced.started_ms - this.#began_ms);
    const took_ms = Math.round(sched.now_ms() - traced.started_ms);
    this.#trace.peers.push({ peer, wave, started_ms, took_ms, outcome, tries, providers, closer });
  }
}

function outcomeOf(error: unknown): ReceiptPeerDto['outcome'] {
  if (error === undefined) return 'answered';
  if (isRonError(error, 'breaker_open')) return 'breaker_open';
  return isRonError(error, 'timeout') ? 'timeout' : 'failed';
}
