/** The entry that turns a message into a dead letter now. */
import type { DeadReason } from '@ron/proto';
import type { MailboxState } from '../../queue/mailbox-state.ts';
import type { Slot } from '../../queue/states.ts';
import type { SettledEntry } from '../../store/records.ts';
import type { LastErrors } from '../settle/last-errors.ts';
import type { AgeClock } from '../age-clock.ts';

export interface DeadEntryInit {
  readonly ages: AgeClock;
  readonly state: MailboxState;
  readonly errors: LastErrors;
}

/** `error`: default the last one that a nack stated. */
export function deadEntry(
  { state, errors, ages }: DeadEntryInit,
  slot: Slot,
  reason: DeadReason,
  error?: string,
): SettledEntry {
  const { seq, topic, attempts } = state.view(slot);
  const dead_ms = ages.stamp_ms();
  return { outcome: 'dead', seq, topic: topic.name, reason, attempts, dead_ms, error: error ?? errors.of(seq) };
}
