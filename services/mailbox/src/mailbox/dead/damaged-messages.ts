/**
 * Dead letters of messages whose record is damaged.
 *
 * Contract: does nothing if the message is gone, dead or being settled. Resolves when the dead letter is durable.
 */
import type { MailboxState } from '../../queue/mailbox-state.ts';
import { NONE, STATE } from '../../queue/states.ts';
import type { SettledEntry } from '../../store/records.ts';
import type { AgeClock } from '../age-clock.ts';
import { deadEntry } from './dead-entry.ts';
import type { LastErrors } from '../settle/last-errors.ts';
import type { Settling } from '../settle/settling.ts';

export interface DamagedMessagesInit {
  readonly ages: AgeClock;
  readonly state: MailboxState;
  readonly settling: Settling;
  readonly errors: LastErrors;
  readonly appendSettled: (entries: readonly SettledEntry[], signal: AbortSignal) => Promise<unknown>;
}

export class DamagedMessages {
  readonly #init: DamagedMessagesInit;

  constructor(init: DamagedMessagesInit) {
    this.#init = init;
  }

  async makeDead(seq: number, signal: AbortSignal): Promise<void> {
    const { state, settling, appendSettled } = this.#init;
    const slot = state.find(seq);
    if (slot === NONE || state.stateOf(slot) === STATE.dead || state.isSettling(slot)) return;
    const entry = deadEntry(this.#init, slot, 'damaged');
    const settlement = settling.begin(entry, 'damage');
    await settling.commit([settlement], () => appendSettled([entry], signal));
  }
}
