/** A hedged lookup under every schedule. The model takes the class, so that a mutant can replace it. */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { RetryBudget } from '@ron/kernel';
import { compareDistance, positionOfKey, positionOfPeer } from '../keys.ts';
import type { PeerRef } from '../peers.ts';
import { peerIdOf } from '../testing/network.ts';
import type { Lookup, LookupEnd } from './lookup.ts';

const HEDGE_MS = 150;
/** Longer than the explorer lets the clock jump, so that the budget is not renewed. */
const WINDOW_MS = 1e12;

export interface LookupModelInit {
  readonly peers: number;
  readonly alpha: number;
  readonly beta: number;
  /** Hedges that the budget allows. */
  readonly budget: number;
  /** Whether answers name all peers; otherwise the lookup begins with all of them. */
  readonly isLearning?: boolean;
  /** Whether each request stalls before it ends. */
  readonly isStalling?: boolean;
  /** Whether the caller may abort at any moment. */
  readonly isLeaving?: boolean;
}

interface Request {
  readonly peer: string;
  readonly signal: AbortSignal;
  result: 'running' | 'found' | 'nothing' | 'failed';
  hasStalled: boolean;
}

/** The farthest first, so that a lookup that begins with the first one learns of closer peers. */
function peersFrom(target: Uint8Array, count: number): PeerRef[] {
  const ids = Array.from({ length: count }, (_, at) => peerIdOf(`model ${at}`));
  ids.sort((a, b) => compareDistance(target, positionOfPeer(b)!, positionOfPeer(a)!));
  return ids.map((id) => ({ id, addrs: [] }));
}

/** One lookup whose peers have the result, have nothing, or fail, at any moment, and ignore their abort. */
export function lookupModel(Class: typeof Lookup, init: LookupModelInit): Build {
  return (world) => {
    const target = positionOfKey(Buffer.from('model'));
    const peers = peersFrom(target, init.peers);
    const budget = new RetryBudget({ ratio: 0, floor: init.budget, window_ms: WINDOW_MS });
    const leaving = new AbortController();
    const requests: Request[] = [];
    let [wrong, hedges, progress_ms] = ['', 0, 0];
    let isFound = false;
    let end: LookupEnd | undefined;
    const lookup = new Class<Request['result']>({
      target,
      self: peerIdOf('self'),
      seeds: init.isLearning === true ? peers.slice(0, 1) : peers,
      limits: { alpha: init.alpha, beta: init.beta, hedge_ms: HEDGE_MS },
      budget,
      isOpenTo: () => true,
      send: async (peer, { signal, onStalled }) => {
        if (end !== undefined || signal.aborted) wrong ||= 'a request began after the end';
        if (requests.some((other) => other.peer === peer.id)) wrong ||= 'a peer was queried twice';
        // The first answer brought closer peers just now.
        if (init.isLearning === true && requests.length === 1) progress_ms = world.now_ms();
        const request: Request = { peer: peer.id, signal, result: 'running', hasStalled: false };
        requests.push(request);
        const result = world.choose('result', ['found', 'nothing', 'failed'] as const);
        const name = `request ${requests.length}`;
        if (init.isStalling === true) {
          await world.io(`${name} stalls`);
          request.hasStalled = true;
          onStalled?.();
        }
        await world.io(name);
        request.result = result;
        if (result === 'failed') throw new Error('failed');
        return result;
      },
      onAnswer: (_peer, result) => {
        if (end !== undefined) wrong ||= 'an answer was used after the end';
        isFound ||= result === 'found';
        return { isResult: result === 'found', closer: init.isLearning === true ? peers : [] };
      },
      isSatisfied: () => isFound,
      events: {
        onHedge: (result) => {
          if (result !== 'started') return;
          hedges += 1;
          if (world.now_ms() < progress_ms + HEDGE_MS) wrong ||= 'a hedge began too early';
        },
      },
    });
    world.task('caller', async () => {
      end = await lookup.run(leaving.signal);
      for (const { result, signal } of requests) {
        assert.ok(result !== 'running' || signal.aborted, 'a loser was not canceled');
      }
      if (end.reason === 'satisfied') assert.ok(isFound, 'satisfied without a result');
      if (end.reason === 'exhausted') {
        assert.ok(!isFound, 'a result was lost');
        assert.ok(!requests.some(({ result }) => result === 'running'), 'ended while a peer could answer');
        const answered = requests.some(({ result }) => result === 'nothing');
        if (init.isLearning !== true || answered) assert.equal(requests.length, init.peers, 'a peer was left out');
      }
      if (end.reason === 'aborted') assert.ok(leaving.signal.aborted, 'aborted without an abort');
    });
    if (init.isLeaving === true) world.task('leaver', async () => leaving.abort(new Error('gone')));
    return {
      invariant: () => {
        assert.equal(wrong, '');
        assert.ok(hedges <= init.budget, 'the budget was exceeded');
        const isCounted = ({ result, hasStalled }: Request): boolean => result === 'running' && !hasStalled;
        const running = end === undefined ? requests.filter(isCounted).length : 0;
        assert.ok(running <= init.alpha + hedges, 'more than alpha requests and the hedges are under way');
      },
      final: () => assert.notEqual(end, undefined, 'no end'),
    };
  };
}
