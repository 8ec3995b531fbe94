/** Compares the totals of the ledger with the messages that are held. */
import type { HeldCounts, SettledEntry } from '../records.ts';
import { Problems, type LedgerProblem } from './problems.ts';
import { waitingOf, type TopicRow, type LedgerTopics } from './ledger-topics.ts';

/** Counts a settled message in the totals of its topic. */
export function countSettled(row: TopicRow, outcome: SettledEntry['outcome']): void {
  if (outcome === 'acked') row.acked += 1;
  else if (outcome === 'dead') row.dead += 1;
  else {
    row.dead -= 1;
    row.gone += 1;
  }
}

/** Differences between the totals by the records and the messages that are held. [mailbox I-8] */
export function heldDifferences(topics: LedgerTopics, held: Iterable<HeldCounts>): string[] {
  const counts = new Map([...held].map((each) => [each.topic, each]));
  return topics.all().flatMap((row) => {
    const { waiting = 0, dead = 0 } = counts.get(row.topic) ?? {};
    const by_records = waitingOf(row);
    if (waiting === by_records && dead === row.dead) return [];
    return [
      `topic ${row.topic}: ${by_records} waiting and ${row.dead} dead by the records, ${waiting} and ${dead} in the log`,
    ];
  });
}

/** The differences as a problem; undefined if the ledger balances. */
export function heldProblem(topics: LedgerTopics, held: Iterable<HeldCounts>): LedgerProblem | undefined {
  const problems = new Problems();
  for (const item of heldDifferences(topics, held)) problems.add(item);
  return problems.report();
}
