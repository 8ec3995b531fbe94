/**
 * A ledger problem that the operator has seen and accepted.
 *
 * `ron queue accept` writes `accept.json`; the next start removes it, and accepts exactly the problem that it names by an
 * `accepted` record. If there is another problem or none, the file has no effect: it does not wait for a later problem.
 */
import { join } from 'node:path';
import { readWhole, realFileSystem, writeWhole, type FileSystem } from '@ron/log';
import type { LedgerProblem } from './problems.ts';
import type { AcceptedEntry, HeldCounts, TopicTotals } from '../records.ts';
import type { LedgerTopics } from './ledger-topics.ts';

const FILE = 'accept.json';
const FILE_BYTES_MAX = 64 * 1024;
const REASON_CHARS_MAX = 1024;

export interface Acceptance {
  readonly problem_sha256: string;
  readonly reason: string;
}

export async function writeAcceptance(
  dir: string,
  acceptance: Acceptance,
  fs: FileSystem = realFileSystem,
): Promise<void> {
  await writeWhole(fs, join(dir, FILE), Buffer.from(`${JSON.stringify(acceptance)}\n`));
}

/**
 * Reads the file and removes it durably: an acceptance is used once, by the start that follows it. Undefined if there is none.
 * Rejects if it is malformed or cannot be removed.
 */
export async function takeAcceptance(fs: FileSystem, dir: string): Promise<Acceptance | undefined> {
  const bytes = await readWhole(fs, join(dir, FILE), FILE_BYTES_MAX);
  if (bytes === undefined) return undefined;
  await fs.remove(join(dir, FILE));
  await fs.syncDir(dir);
  return acceptanceIn(bytes);
}

function acceptanceIn(bytes: Buffer): Acceptance {
  const { problem_sha256, reason } = JSON.parse(bytes.toString('utf8')) as Partial<Acceptance>;
  if (typeof problem_sha256 !== 'string' || typeof reason !== 'string') throw new Error('a field is missing');
  return { problem_sha256, reason: reason.slice(0, REASON_CHARS_MAX) };
}

/** The record of an acceptance: from here on the totals agree with the messages that are held. */
export function acceptedEntry(
  problem: LedgerProblem,
  reason: string,
  at_ms: number,
  topics: LedgerTopics,
  held: Iterable<HeldCounts>,
): AcceptedEntry {
  const counts = new Map([...held].map((each) => [each.topic, each]));
  const totals = topics.all().map((row) => {
    const { waiting = 0, dead = 0 } = counts.get(row.topic) ?? {};
    return { number: row.number, totals: agreeing(row, waiting, dead) };
  });
  return { at_ms, reason, isAll: problem.more > 0, problems: problem.items, totals };
}

/** Lost messages count as gone. If more are held than the totals allow, `sent` grows. */
function agreeing(counted: TopicTotals, waiting: number, dead: number): TopicTotals {
  const { sent, acked } = counted;
  const gone = Math.max(counted.gone, sent - acked - waiting - dead);
  return { sent: acked + waiting + dead + gone, acked, dead, gone };
}
