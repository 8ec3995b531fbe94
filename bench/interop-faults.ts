/** Webhooks under attack and without mailbox: a forged flood beside verified ones, and mailbox killed under load. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { MailboxClient } from '@ron/client';
import { Generator, outcomesOf, type Bench, type Findings } from './interop-report.ts';
import { RAISED, TOPIC, type InteropNode } from './interop-node.ts';
import { WEBHOOK } from './interop-webhooks.ts';
import { quick } from './lib.ts';
import { cpu_us } from './servers.ts';

const FORGED_PER_S = 2000;
const VERIFIED_PER_S = 100;
const FLOOD_SECONDS = quick ? 1 : 10;
const VERIFIED = VERIFIED_PER_S * FLOOD_SECONDS;
const FORGED = FORGED_PER_S * FLOOD_SECONDS;
const WARM_UP_SECONDS = quick ? 0.5 : 5;
/** Each stays below `webhooks.address_rps`, so that every signature is checked. */
const FORGERS = ['127.0.0.2', '127.0.0.3', '127.0.0.4', '127.0.0.5', '127.0.0.6'];
const P95_MS_MAX = 50;
const OUTAGE_PER_S = 300;
const BEFORE_S = quick ? 0.3 : 3;
const OUTAGE_S = quick ? 1 : 10;
const AFTER_S = quick ? 0.7 : 10;
const DRAIN_MS_MAX = 60_000;
const SAMPLE_MS = 100;
const RECEIVE_MAX = 128;

interface Counts {
  readonly messages: number;
  readonly receipts: number;
  readonly accepted: number;
  readonly refused: number;
  readonly busy: number;
  readonly dropped: number;
}

async function countsOf(node: InteropNode, mailbox: MailboxClient): Promise<Counts> {
  const metrics = await node.metrics('interop');
  const of = (outcome: string): number => metrics(`webhooks_total{provider="github",outcome="${outcome}"}`);
  return {
    messages: (await mailbox.topic(TOPIC)).ledger.sent,
    receipts: metrics('receipts_total{state="stored"}'),
    accepted: of('accepted') + of('spooled'),
    refused: of('refused'),
    busy: metrics('busy_rejections_total{endpoint="webhook"}'),
    dropped: metrics('queue_dropped_total{queue="work"}'),
  };
}

/** The rates of interop have their defaults: forged requests must not use them up. */
export async function forged({ node, findings, generator }: Bench): Promise<void> {
  await node.startInterop(RAISED);
  const { port } = node.get('interop');
  const mailbox = await node.mailbox();
  const flood = new Generator();
  const verified = { port, what: WEBHOOK, rate_per_s: VERIFIED_PER_S, connections: 64 };
  // Creates the topic, and compiles the path of a webhook.
  await generator.run({ ...verified, requests: VERIFIED_PER_S * WARM_UP_SECONDS });
  const alone = await generator.run({ ...verified, requests: VERIFIED });
  const before = await countsOf(node, mailbox);
  const before_us = cpu_us(node.get('interop').pid);
  const [good, bad] = await Promise.all([
    generator.run({ ...verified, requests: VERIFIED }),
    flood.run({
      port,
      what: { ...WEBHOOK, kind: 'forged' },
      rate_per_s: FORGED_PER_S,
      requests: FORGED,
      connections: 100,
      addresses: FORGERS,
    }),
  ]);
  const spent_us = cpu_us(node.get('interop').pid) - before_us;
  const after = await countsOf(node, mailbox);
  flood.child.kill();
  const { p95_ms, longest_ms } = good.good;
  const name = `${VERIFIED_PER_S}/s verified beside ${FORGED_PER_S}/s forged, p95, ms`;
  const value = `${p95_ms.toFixed(1)} (longest ${longest_ms.toFixed(0)}; alone ${alone.good.p95_ms.toFixed(1)}; ${outcomesOf(good)})`;
  findings.time(name, value, `< ${P95_MS_MAX}`, p95_ms < P95_MS_MAX && good.outcomes['202'] === VERIFIED);
  findings.row('answers to the forged', `${outcomesOf(bad)}, in ${bad.seconds.toFixed(1)} s`);
  findings.row('CPU us of interop per request, both kinds', (spent_us / (VERIFIED + FORGED)).toFixed(0));
  reportStored(findings, before, after);
  await node.stop('interop');
}

/** Only the verified webhooks left traces. */
function reportStored(findings: Findings, before: Counts, after: Counts): void {
  const more = (of: keyof Counts): number => after[of] - before[of];
  const stored = `messages +${more('messages')}, receipts +${more('receipts')}, refused +${more('refused')}`;
  const isClean = [more('messages'), more('receipts'), more('accepted')].every((count) => count === VERIFIED);
  findings.row('stored during the flood', stored, `+${VERIFIED} each`, isClean && more('refused') === FORGED);
  const slots = more('busy') + more('dropped');
  findings.row('webhooks refused or dropped by the queue', String(slots), '0', slots === 0);
}

/** Mailbox is killed under load and started again. */
export async function outage({ node, findings, generator }: Bench): Promise<void> {
  await node.startInterop(RAISED);
  const requests = Math.round((BEFORE_S + OUTAGE_S + AFTER_S) * OUTAGE_PER_S);
  const { port } = node.get('interop');
  const order = { port, what: WEBHOOK, rate_per_s: OUTAGE_PER_S, requests, connections: 256, collects: true };
  const over = new AbortController();
  const peak = peakOf(node, over.signal);
  const both = Promise.all([generator.run(order), outageOf(node)]);
  const [report, took_ms] = await both.finally(() => over.abort());
  const { longest_ms } = report.good;
  const answers = `${outcomesOf(report)}, ${report.spooled} spooled, longest ${longest_ms.toFixed(0)} ms, p99 ${report.good.p99_ms.toFixed(0)} ms`;
  const name = `mailbox killed for ${OUTAGE_S} s at ${OUTAGE_PER_S}/s`;
  findings.row(`${name}: answers`, answers, `${requests} x 202`, report.outcomes['202'] === requests);
  const { deliveries, mib } = await peak;
  findings.row('spool at its peak', `${deliveries} deliveries, ${mib.toFixed(1)} MiB`);
  findings.row('from the start of mailbox until the spool is empty, under load, s', (took_ms / 1000).toFixed(1));
  const arrived = await receiveAll(await node.mailbox());
  const missing = report.receipts.filter((id) => !arrived.has(id)).length;
  const twice = report.receipts.filter((id) => arrived.get(id)! > 1).length;
  const met = missing === 0 && twice === 0 && new Set(report.receipts).size === requests;
  findings.row('missing in mailbox, by receipt id; arrived twice', `${missing}; ${twice}`, '0; 0', met);
  await node.stop('interop');
}

/** Resolves with the time from the start of mailbox until the spool is empty. */
async function outageOf(node: InteropNode): Promise<number> {
  await sleep(BEFORE_S * 1000);
  await node.stop('mailbox', 'SIGKILL');
  await sleep(OUTAGE_S * 1000);
  const begun_ms = performance.now();
  await node.start('mailbox');
  await node.until('the spool is empty', DRAIN_MS_MAX, (metrics) => metrics('spool_deliveries') === 0);
  return performance.now() - begun_ms;
}

async function peakOf(node: InteropNode, signal: AbortSignal): Promise<{ deliveries: number; mib: number }> {
  const peak = { deliveries: 0, mib: 0 };
  while (!signal.aborted) {
    const metrics = await node.metrics('interop');
    peak.deliveries = Math.max(peak.deliveries, metrics('spool_deliveries'));
    peak.mib = Math.max(peak.mib, metrics('spool_bytes') / 2 ** 20);
    await sleep(SAMPLE_MS);
  }
  return peak;
}

/** Receives and acks all messages of the topic; how often each id arrived. */
async function receiveAll(mailbox: MailboxClient): Promise<ReadonlyMap<string, number>> {
  const arrived = new Map<string, number>();
  for (;;) {
    const messages = await mailbox.receive(TOPIC, { max: RECEIVE_MAX });
    if (messages.length === 0) return arrived;
    for (const { id } of messages) arrived.set(id, (arrived.get(id) ?? 0) + 1);
    await mailbox.ack(
      TOPIC,
      messages.map(({ token }) => token),
    );
  }
}
