/**
 * Dead letters outside of calls and timers: messages whose record is damaged, and messages whose receiver left with the last
 * delivery.
 *
 * Contract: does nothing if the message is gone, dead or being settled. Resolves when the dead letter is durable.
 */
import type { DeadReason } from '@ron/proto';
import type { MailboxState } from '../queue/mailbox-state.ts';
import { NONE, STATE } from '../queue/states.ts';
import type { SettledEntry } from '../store/records.ts';
import { deadEntry } from './dead-entry.ts';
import type { LastErrors } from './last-errors.ts';
import type { SettledBy, Settling } from './settling.ts';

export interface ForcedDeadInit {
  readonly state: MailboxState;
  readonly settling: Settling;
  readonly errors: LastErrors;
  readonly appendSettled: (entries: readonly SettledEntry[], signal: AbortSignal) => Promise<unknown>;
}

export class ForcedDead {
  readonly #init: ForcedDeadInit;

  constructor(init: ForcedDeadInit) {
    this.#init = init;
  }

  async make(seq: number, reason: DeadReason, by: SettledBy, signal: AbortSignal): Promise<void> {
    const { state, settling, appendSettled } = this.#init;
    const slot = state.find(seq);
    if (slot === NONE || state.stateOf(slot) === STATE.dead || state.isSettling(slot)) return;
    const entry = deadEntry(this.#init, slot, reason);
    const settlement = settling.begin(entry, by);
    await settling.commit([settlement], () => appendSettled([entry], signal));
  }
}
