/**
 * `ron queue prove`: reads every record of mailbox and recomputes the ledgers.
 *
 * Contract: without a directory, the running mailbox does it; a stopped one, or one that refuses requests because its ledger
 * is broken, is checked in its directory. Nothing is changed. Exits with 65 if a ledger is broken.
 */
import { isRonError } from '@ron/kernel/core';
import type { ProveProgressDto, ProveReportDto, ProvenTopicDto } from '@ron/proto';
import { usage } from '../args.ts';
import { CliError } from '../exits.ts';
import { followTask } from '../follow-task.ts';
import { columns, humanSize } from '../format.ts';
import { homeOf } from '../home.ts';
import { ProgressLine } from '../progress-line.ts';
import { counted, withMailbox } from './mailbox-service.ts';
import type { QueueInvocation } from './queue-options.ts';

export async function prove(invocation: QueueInvocation, [dir]: readonly string[]): Promise<void> {
  const { io, values } = invocation;
  if (dir !== undefined && values.url !== undefined)
    throw usage({ name: 'queue' }, 'Specify a directory or --url, not both');
  const report = dir === undefined ? await proveNode(invocation) : await proveOffline(invocation, dir);
  io.result(reportText(report), report);
  if (!report.ok)
    throw new CliError('data', `${report.problem ?? 'a ledger is broken'}; see \`ron queue accept\``, 'ledger');
}

/** The mailbox of the node; its directory if it does not answer. */
async function proveNode(invocation: QueueInvocation): Promise<ProveReportDto> {
  try {
    return await proveRunning(invocation);
  } catch (error) {
    const dir = dataDir(invocation);
    const isClosed = error instanceof CliError ? error.exit === 'unavailable' : isRonError(error, 'not_ready');
    if (!isClosed || dir === undefined) throw error;
    invocation.io.note(`mailbox is stopped or not ready; reading ${dir}`);
    const report = await proveOffline(invocation, dir);
    // The state in memory differs from the records; a restart reads it from the records.
    if (report.ok && isRonError(error) && error.message.includes('ledger')) throw error;
    return report;
  }
}

async function proveRunning(invocation: QueueInvocation): Promise<ProveReportDto> {
  const { io, signal } = invocation;
  return await withMailbox(invocation, async (client) => {
    using line = new ProgressLine('prove', io);
    const started = await client.startProve({ signal });
    const done = await followTask(client, started, signal, ({ progress }) => {
      const { done_bytes = 0, total_bytes } = progress as Partial<ProveProgressDto>;
      line.update({ done_bytes, total_bytes });
    });
    const { report } = done.progress as Partial<ProveProgressDto>;
    if (report === undefined) throw new CliError('failed', 'mailbox ended the check without a report');
    return report;
  });
}

/** Works beside a mailbox that refuses requests: it appends nothing. */
export async function proveOffline({ io, signal }: QueueInvocation, dir: string): Promise<ProveReportDto> {
  const { proveDirectory } = await import('@ron/mailbox/offline');
  using line = new ProgressLine('prove', io);
  return await proveDirectory(dir, { signal, onProgress: (progress) => line.update(progress) });
}

/** The data directory of mailbox; undefined if another node is called. */
export function dataDir({ values, io }: QueueInvocation): string | undefined {
  if (values.url !== undefined || (io.env['RON_URL'] ?? '') !== '') return undefined;
  return homeOf(values, io).of('mailbox').data;
}

export function reportText(report: ProveReportDto): string {
  const { ok, segments, records, bytes, topics, damaged, problem } = report;
  const amount = `${counted(records, 'record')} in ${counted(segments, 'segment')}, ${humanSize(bytes)}`;
  return columns([
    ['log', `${amount}${ok && damaged === 0 ? ', all verified' : ''}`],
    ...topics.map((each): [string, string] => ['ledger', ledgerText(each)]),
    ...(damaged === 0
      ? []
      : [['damaged', `${counted(damaged, 'message')}, never delivered: dead letters`] satisfies [string, string]]),
    ...(problem === undefined ? [] : [['problem', problem] satisfies [string, string]]),
  ]);
}

const ledgerText = ({ topic, sent, acked, waiting, dead, gone }: ProvenTopicDto): string =>
  `${topic}: ${sent} sent = ${acked} acked + ${waiting} waiting + ${dead} dead + ${gone} gone`;
