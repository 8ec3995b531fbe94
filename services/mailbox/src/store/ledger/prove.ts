/**
 * Proves the ledger from disk: reads every record, counts again, and compares.
 *
 * Contract: changes nothing on disk. The same problem has the same hash as at a start. `proveDirectory` works on the directory of a
 * stopped mailbox, of one behind its closed `ledger` gate, and on a copy; `proveLog` on the log of this process, from the
 * oldest segment to the durable end at the call, and compares the result with the state in RAM at that moment. A difference
 * closes that log for appends, unless a part of it could not be read.
 * Bound: one byte of memory for each number of the log that is in use. Cancellation: by the signal.
 */
import { join } from 'node:path';
import { RonError } from '@ron/kernel';
import { realFileSystem, scanDirectory, type FileSystem, type Position } from '@ron/log';
import type { ProveProgressDto, ProveReportDto } from '@ron/proto';
import { readEndMark } from '../end-mark.ts';
import type { MailboxLog } from '../mailbox-log.ts';
import type { HeldCounts, TopicTotals } from '../records.ts';
import { HeldMessages } from './held-messages.ts';
import { Problems, type LedgerProblem } from './problems.ts';
import { Replay } from './replay.ts';
import { LedgerTopics, waitingOf, type TopicRow } from './ledger-topics.ts';

export interface ProveInit {
  signal: AbortSignal;
  /** Default: the real one. */
  fs?: FileSystem;
  onProgress?: (progress: Omit<ProveProgressDto, 'report'>) => void;
}

/** The state that the records must lead to. */
interface Expected {
  readonly topics: readonly Readonly<TopicRow>[];
  readonly held: readonly HeldCounts[];
}

interface Proof {
  readonly report: ProveReportDto;
  readonly found: LedgerProblem | undefined;
  /** The first part that could not be read. */
  readonly unreadable: Position | undefined;
}

export async function proveDirectory(dir: string, init: ProveInit): Promise<ProveReportDto> {
  const fs = init.fs ?? realFileSystem;
  const names = await fs.list(join(dir, 'segments')).catch(() => undefined);
  if (names === undefined) throw new RonError('not_found', `${dir} is not the data directory of a mailbox`);
  return (await prove(fs, dir, (await readEndMark(fs, dir)) ?? 0, init)).report;
}

/** [mailbox I-8] */
export async function proveLog(mailbox: MailboxLog, dir: string, init: Omit<ProveInit, 'fs'>): Promise<ProveReportDto> {
  const { files } = mailbox.segments;
  const numbers = files.numbers();
  const ends = new Map(numbers.map((segment) => [segment, files.durableBytesOf(segment)]));
  const leases = numbers.map((segment) => files.lease(segment));
  const end_mark = mailbox.seq_durable;
  const topics = mailbox.topics.all().map((row) => ({ ...row }));
  const held = [...mailbox.target.counts()].map((each) => ({ ...each }));
  try {
    const { report, found, unreadable } = await prove(files.fs, dir, end_mark, init, ends, { topics, held });
    // A read error may go away, and then nothing is missing.
    if (unreadable !== undefined) mailbox.disk.readFailed(unreadable, 'a read of the proof failed');
    else if (found !== undefined) mailbox.onDifference(found);
    return report;
  } finally {
    for (const lease of leases) lease[Symbol.dispose]();
  }
}

async function prove(
  fs: FileSystem,
  dir: string,
  end_mark: number,
  { signal, onProgress }: ProveInit,
  ends?: ReadonlyMap<number, number>,
  expected?: Expected,
): Promise<Proof> {
  const held = new HeldMessages();
  const replay = new Replay(held);
  let unreadable: Position | undefined;
  const { segments, bytes } = await scanDirectory({
    dir,
    fs,
    ...(ends && { ends }),
    onRecord: replay.onRecord,
    onBadBody: replay.onBadBody,
    skipsUnreadable: true,
    onDamage: ({ what, segment, offset }) => {
      if (what === 'unreadable part') unreadable ??= { segment, offset };
    },
    onSegment: (done) => onProgress?.({ done_bytes: done.bytes, total_bytes: done.bytes_total }),
    signal,
  });
  const { problem } = replay.end(held.counts(), end_mark);
  const found = problem ?? (expected && differences(expected, replay.topics, held.counts()));
  const report = {
    ok: found === undefined,
    segments,
    records: replay.records,
    bytes,
    topics: replay.topics.all().map(provenTopic),
    damaged: replay.damaged_bodies,
    ...(found && { problem: found.text, problem_sha256: found.sha256 }),
  };
  return { report, found, unreadable };
}

const provenTopic = (row: TopicRow): ProveReportDto['topics'][number] => {
  const { topic, sent, acked, dead, gone } = row;
  return { topic, sent, acked, waiting: waitingOf(row), dead, gone };
};

function differences(
  { topics, held }: Expected,
  proven: LedgerTopics,
  found: Iterable<HeldCounts>,
): LedgerProblem | undefined {
  const problems = new Problems();
  for (const row of topics) {
    const counted: TopicTotals = proven.get(row.topic) ?? { sent: 0, acked: 0, dead: 0, gone: 0 };
    const difference = LedgerTopics.difference(row.topic, counted, row);
    if (difference !== undefined) problems.add(`in memory: ${difference}`);
  }
  const counts = new Map([...found].map((each) => [each.topic, each]));
  for (const { topic, waiting, dead } of held) {
    const disk = counts.get(topic) ?? { waiting: 0, dead: 0 };
    if (disk.waiting === waiting && disk.dead === dead) continue;
    problems.add(
      `topic ${topic}: ${waiting} waiting and ${dead} dead in memory, ${disk.waiting} and ${disk.dead} on disk`,
    );
  }
  return problems.report();
}
