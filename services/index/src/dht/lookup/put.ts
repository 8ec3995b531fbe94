/**
 * Stores a value at several peers at once.
 *
 * Contract: `quorum` resolves when more than half of the targets have stored the value, when all requests have ended, or
 * when the signal aborts. The remaining requests continue, each within its own time limit, until `closing` aborts.
 * Neither promise rejects. Bound: one request for each target.
 */
import { onAbort, sched } from '@ron/kernel';
import type { PeerRef } from '../peers.ts';

export interface PutInit {
  readonly targets: readonly PeerRef[];
  readonly signal: AbortSignal;
  readonly closing: AbortSignal;
  readonly send: (peer: PeerRef, signal: AbortSignal) => Promise<void>;
}

export interface Put {
  readonly stored: number;
  readonly quorum: Promise<void>;
  readonly ended: Promise<void>;
}

export function putToQuorum({ targets, signal, closing, send }: PutInit): Put {
  const quorum = sched.park<void>('dht put quorum');
  const registration = onAbort(signal, () => quorum.wake());
  const progress = { stored: 0 };
  const putOne = async (peer: PeerRef): Promise<void> => {
    try {
      await send(peer, closing);
    } catch {
      return;
    }
    progress.stored += 1;
    if (progress.stored * 2 > targets.length) quorum.wake();
  };
  const putAll = async (): Promise<void> => {
    await Promise.all(targets.map(putOne));
    registration[Symbol.dispose]();
    quorum.wake();
  };
  const ended = putAll();
  return {
    get stored() {
      return progress.stored;
    },
    quorum: quorum.promise,
    ended,
  };
}
