/** The gates of `/readyz` of mailbox. The listener adds `draining`, the capability keys add theirs. */
import type { GateInit } from '@ron/ingress';

export interface GatesInit {
  /** Why the ledger does not balance; undefined if it does. */
  readonly ledger: () => string | undefined;
  readonly disk: () => string | undefined;
  /** The topics that refuse sends. */
  readonly full: () => readonly string[];
  /** Why no topic can be created; undefined if one can. */
  readonly tooMany: () => string | undefined;
}

export function gatesOf({ ledger, disk, full, tooMany }: GatesInit): Readonly<Record<string, GateInit>> {
  return {
    // [mailbox I-8] No request is answered from a state that lost messages, until the operator accepts the loss.
    ledger: { kind: 'hard', refuses_work: true, sample: ledger },
    disk: { kind: 'soft', sample: disk },
    topics: { kind: 'soft', sample: () => fullProblem(full()) ?? tooMany() },
  };
}

function fullProblem(full: readonly string[]): string | undefined {
  const [first] = full;
  if (first === undefined) return undefined;
  return full.length === 1 ? `${first} is full` : `${first} and ${full.length - 1} more topics are full`;
}
