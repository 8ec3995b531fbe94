/** `ron queue stats`: topics with their ledgers and limits. */
import { formatDuration } from '@ron/config/units';
import type { TopicDto, TopicLedger } from '@ron/proto';
import { CliError } from '../exits.ts';
import { columns, humanDuration, humanSize, table } from '../format.ts';
import { counted, topicArg, withMailbox } from './mailbox-service.ts';
import { policyRows } from './policy.ts';
import type { QueueInvocation } from './queue-options.ts';

export async function stats(invocation: QueueInvocation, [name]: readonly string[]): Promise<void> {
  const { io, signal } = invocation;
  if (name !== undefined) {
    const topic = topicArg(name);
    const found = await withMailbox(invocation, (client) => client.topic(topic, { signal }));
    io.result(topicText(found), found);
    return requireBalance([found]);
  }
  const topics = await withMailbox(invocation, (client) => client.topics({ signal }));
  for (const topic of io.json ? topics : []) io.result('', topic);
  if (!io.json) io.result(topics.length === 0 ? 'no topics yet' : topicTable(topics), {});
  requireBalance(topics);
}

export const differenceOf = ({ sent, acked, ready, delayed, leased, dead, gone }: TopicLedger): number =>
  sent - (acked + ready + delayed + leased + dead + gone);

export function requireBalance(topics: readonly Pick<TopicDto, 'topic' | 'ledger'>[]): void {
  const broken = topics.filter(({ ledger }) => differenceOf(ledger) !== 0).map(({ topic }) => topic);
  if (broken.length > 0) throw new CliError('data', `the ledger does not balance: ${broken.join(', ')}`, 'ledger');
}

export const waitingOf = ({ ready, delayed, leased }: TopicLedger): number => ready + delayed + leased;

/** One message a minute is 0.02 a second. */
const rateText = (per_s: number): string => per_s.toFixed(per_s < 10 ? 2 : 0);

function topicTable(topics: readonly TopicDto[]): string {
  const head = ['TOPIC', 'READY', 'DELAYED', 'LEASED', 'DEAD', 'BYTES', 'OLDEST', 'SENT/S', 'ACKED/S'];
  const rows = topics.map(({ topic, ledger, bytes, oldest_s, sent_per_s, acked_per_s }) => [
    topic,
    ...[ledger.ready, ledger.delayed, ledger.leased, ledger.dead].map(String),
    humanSize(bytes),
    oldest_s === null ? '-' : humanDuration(oldest_s * 1000),
    rateText(sent_per_s),
    rateText(acked_per_s),
  ]);
  return table(head, rows);
}

function topicText(found: TopicDto): string {
  const { topic, ledger, bytes, dead_bytes, oldest_s, window_ms, keys } = found;
  const { sent, acked, ready, delayed, leased, dead, gone } = ledger;
  const sum = `${acked} acked + ${ready} ready + ${delayed} delayed + ${leased} leased + ${dead} dead + ${gone} gone`;
  const off = differenceOf(ledger);
  const oldest = oldest_s === null ? '' : `, the oldest for ${humanDuration(oldest_s * 1000)}`;
  return columns([
    ['topic', topic],
    ['ledger', `${sent} sent = ${sum}${off === 0 ? '' : `: off by ${off}`}`],
    ['waiting', `${counted(waitingOf(ledger), 'message')}, ${humanSize(bytes)}${oldest}`],
    ['dead letters', `${dead}, ${humanSize(dead_bytes)}`],
    ['last minute', `${rateText(found.sent_per_s)} sent/s, ${rateText(found.acked_per_s)} acked/s`],
    ['idempotency', `${counted(keys, 'key')}, each remembered for ${formatDuration(window_ms)}`],
    ...policyRows(found),
  ]);
}
