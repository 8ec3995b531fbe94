/** Checks mailbox: its topics and dead letters, its ledgers, its directory and its disk. */
import { stat, statfs } from 'node:fs/promises';
import { MailboxClient, TRANSPORT_DEFAULTS } from '@ron/client';
import { reserveBytes } from '@ron/log';
import { MAILBOX_LIMITS, type TopicDto } from '@ron/proto';
import { messageOf, systemCode } from '../exits.ts';
import { humanDuration, humanSize } from '../format.ts';
import type { Home } from '../home.ts';
import type { Io } from '../io.ts';
import { counted } from '../queue/mailbox-service.ts';
import { differenceOf, waitingOf } from '../queue/stats.ts';
import { withClient } from '../service-client.ts';
import type { Finding } from './finding.ts';

const CALL_MS = 5000;
/** Topics with a problem that are listed one by one. */
const LISTED_MAX = 20;
/** A topic is nearly full above this part of a limit. */
const FULL_PART = 0.8;
/** A message is old above this part of `max_age`, at which it becomes a dead letter. */
const OLD_PART = 0.5;
/** Warns below this multiple of the reserve of a disk. */
const SCARCE = 2;

/** Checks the running mailbox. Its gates are checked with those of all services. */
export async function checkMailbox(home: Home, io: Io, signal: AbortSignal): Promise<Finding[]> {
  const { RON_URL: _, ...env } = io.env;
  const open = (init: ConstructorParameters<typeof MailboxClient>[0]): MailboxClient =>
    new MailboxClient({ ...init, deadline_ms: CALL_MS, policy: TRANSPORT_DEFAULTS.policy });
  const values = { dir: home.dir };
  const disk = await checkMailboxDisk(home);
  try {
    const topics = await withClient('mailbox', open, values, { env }, signal, (client) => client.topics({ signal }));
    return [...topicFindings(topics), ...disk];
  } catch (error) {
    const fix = `${messageOf(error)}; see "Mailbox" in docs/operations.md`;
    return [{ level: 'warn', what: 'the topics of mailbox cannot be checked', fix }, ...disk];
  }
}

export function topicFindings(topics: readonly TopicDto[]): Finding[] {
  const waiting = topics.reduce((sum, { ledger }) => sum + waitingOf(ledger), 0);
  const problems = topics.flatMap((topic) => [
    ...ledgerFindings(topic),
    ...fullFindings(topic),
    ...oldFindings(topic),
    ...deadFindings(topic),
  ]);
  const ok: Finding = {
    level: 'ok',
    what: `${counted(topics.length, 'topic')}, ${counted(waiting, 'message')} waiting`,
  };
  const more = problems.length - LISTED_MAX;
  const listed = problems.slice(0, LISTED_MAX);
  if (more <= 0) return [ok, ...listed];
  return [ok, ...listed, { level: 'warn', what: `${more} more problems of topics`, fix: 'run `ron queue stats`' }];
}

function ledgerFindings({ topic, ledger }: TopicDto): Finding[] {
  const off = differenceOf(ledger);
  if (off === 0) return [];
  const fix = 'run `ron queue prove`; see "Ledger broken" in docs/operations.md';
  return [{ level: 'fail', what: `the ledger of topic ${topic} is off by ${off}`, fix }];
}

function fullFindings({ topic, ledger, bytes, policy }: TopicDto): Finding[] {
  const messages = waitingOf(ledger);
  const [by_messages, by_bytes] = [messages / policy.max_messages, bytes / policy.max_bytes];
  const part = Math.max(by_messages, by_bytes);
  if (part < FULL_PART) return [];
  const limit = by_messages >= by_bytes ? 'max_messages=N' : 'max_bytes=SIZE';
  const what = `topic ${topic} is ${Math.min(100, Math.floor(part * 100))} % full: ${counted(messages, 'message')}, ${humanSize(bytes)}`;
  const fix = `add receivers, or raise the limit: \`ron queue policy ${topic} --set ${limit}\``;
  return [{ level: part >= 1 ? 'fail' : 'warn', what, fix }];
}

function oldFindings({ topic, oldest_s, policy }: TopicDto): Finding[] {
  if (oldest_s === null || oldest_s * 1000 < policy.max_age_ms * OLD_PART) return [];
  const what = `the oldest message of topic ${topic} has waited for ${humanDuration(oldest_s * 1000)}`;
  const fix = `it becomes a dead letter after ${humanDuration(policy.max_age_ms)}: check the receivers of the topic`;
  return [{ level: 'warn', what, fix }];
}

function deadFindings({ topic, ledger, dead_bytes, policy }: TopicDto): Finding[] {
  if (ledger.dead === 0) return [];
  const part = Math.max(ledger.dead / policy.dead_max_messages, dead_bytes / policy.dead_max_bytes);
  const full = part < FULL_PART ? '' : ', and the oldest are dropped soon';
  const what = `topic ${topic} has ${counted(ledger.dead, 'dead letter')}${full}`;
  const fix = `read them with \`ron queue dlq ${topic}\`, then \`ron queue replay ${topic} --all\``;
  return [{ level: 'warn', what, fix }];
}

/** No finding in amnesia, or before the first start. */
export async function checkMailboxDisk(home: Home): Promise<Finding[]> {
  const dir = home.of('mailbox').data;
  try {
    const { mode } = await stat(dir);
    const { bavail, blocks, bsize } = await statfs(dir);
    const { reserve_bytes_max, reserve_bytes_min } = MAILBOX_LIMITS;
    const free_bytes = bavail * bsize;
    const reserve_bytes = reserveBytes(blocks * bsize, reserve_bytes_max, reserve_bytes_min);
    const open: Finding = { level: 'warn', what: `${dir} is open to other users`, fix: `chmod 700 ${dir}` };
    const fix = `free disk space in ${dir}; acknowledged messages are removed from disk over time`;
    const what = `the disk of mailbox is ${free_bytes > reserve_bytes ? 'nearly full' : 'full, and sends are refused'}`;
    const full: Finding = {
      level: 'warn',
      what: `${what}: ${humanSize(free_bytes)} free, ${humanSize(reserve_bytes)} required`,
      fix,
    };
    return [...((mode & 0o077) === 0 ? [] : [open]), ...(free_bytes > SCARCE * reserve_bytes ? [] : [full])];
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return [];
    return [{ level: 'warn', what: `${dir} cannot be read (${systemCode(error) ?? messageOf(error)})` }];
  }
}
