/** Webhooks without faults: CPU time for each, their latency at 500 per second, and the time until receipts are signed. */
import { outcomesOf, spread, sum, type Bench } from './interop-report.ts';
import { PROVIDER, SECRET, UNLIMITED, type InteropNode, type NodeService } from './interop-node.ts';
import type { Report } from './interop-order.ts';
import { median, quick } from './lib.ts';
import { cpu_us } from './servers.ts';

export const WEBHOOK = { kind: 'webhook', provider: PROVIDER, secret: SECRET, bytes: 1024 } as const;

const CLIENTS = 64;
/** Rounds that are discarded, until the code is optimized. */
const WARM_UPS = quick ? 1 : 3;
const ROUNDS = quick ? 1 : 7;
const WEBHOOKS = quick ? 1000 : 10_000;
const CPU_US_MAX = 250;
const CPU_US_GOAL = 160;
const RATE_PER_S = 500;
const SECONDS = quick ? 1 : 30;
const SAMPLE_EVERY = 10;
const P95_MS_MAX = 20;
const SIGNED_P99_MS_MAX = 1000;
const SIGNED_WAIT_MS = 10_000;
const MEASURED = ['interop', 'mailbox', 'kms'] as const satisfies readonly NodeService[];

export async function webhooks(bench: Bench): Promise<void> {
  const { node } = bench;
  await node.startInterop(UNLIMITED);
  await cpuOfEach(bench);
  await latency(bench);
  await node.stop('interop');
}

export const untilSigned = (node: InteropNode): Promise<void> =>
  node.until('all receipts are signed', SIGNED_WAIT_MS, (metrics) => {
    const of = (state: string): number => metrics(`receipts_total{state="${state}"}`);
    return of('stored') === of('signed');
  });

async function cpuOfEach({ node, findings, generator }: Bench): Promise<void> {
  const totals: number[] = [];
  const parts = new Map<string, number[]>(MEASURED.map((name) => [name, []]));
  const reports: Report[] = [];
  for (let round = -WARM_UPS; round < ROUNDS; round++) {
    const before_us = MEASURED.map((name) => cpu_us(node.get(name).pid));
    const report = await generator.run({
      port: node.get('interop').port,
      what: WEBHOOK,
      requests: WEBHOOKS,
      connections: CLIENTS,
    });
    // The signatures belong to the cost.
    await untilSigned(node);
    if (report.outcomes['202'] !== WEBHOOKS) throw new Error(`webhooks were refused: ${outcomesOf(report)}`);
    if (round < 0) continue;
    const each = MEASURED.map((name, at) => (cpu_us(node.get(name).pid) - before_us[at]!) / WEBHOOKS);
    for (const [at, name] of MEASURED.entries()) parts.get(name)!.push(each[at]!);
    totals.push(sum(each));
    reports.push(report);
  }
  const bar = `<= ${CPU_US_MAX}, goal ${CPU_US_GOAL}`;
  findings.time(`CPU us per 1 KiB webhook, ${CLIENTS} clients`, spread(totals, 0), bar, median(totals) <= CPU_US_MAX);
  for (const [name, values] of parts) findings.row(`of these ${name}`, spread(values, 0));
  const ofGenerator = reports.map((report) => report.cpu_us / WEBHOOKS);
  findings.row('the generator, not included', spread(ofGenerator, 0));
  const calls = await callsOf(node);
  findings.row(
    'webhooks per call to mailbox; receipts per signature',
    `${calls.mailbox.toFixed(0)}; ${calls.kms.toFixed(0)}`,
  );
  const rates = reports.map(({ seconds }) => WEBHOOKS / seconds);
  findings.row('webhooks/s with the generator on the same cores', spread(rates, 0));
}

/** Webhooks so far for each call of interop. */
async function callsOf(node: InteropNode): Promise<{ readonly mailbox: number; readonly kms: number }> {
  const accepted = (await node.metrics('interop'))('receipts_total{state="stored"}');
  const sends = (await node.metrics('mailbox'))('http_requests_total{route="POST /v1/mailbox/send",class="2xx"}');
  const signs = (await node.metrics('kms'))('http_requests_total{route="POST /v1/kms/sign",class="2xx"}');
  return { mailbox: accepted / sends, kms: accepted / signs };
}

async function latency({ node, findings, generator }: Bench): Promise<void> {
  const authorization = `Bearer ${await node.token('interop', { scopes: ['interop:get'] })}`;
  const report = await generator.run({
    port: node.get('interop').port,
    what: WEBHOOK,
    requests: RATE_PER_S * SECONDS,
    rate_per_s: RATE_PER_S,
    connections: CLIENTS,
    receipts: { every: SAMPLE_EVERY, authorization },
  });
  const { good, signed } = report;
  const value = `${good.p95_ms.toFixed(1)} (median ${good.p50_ms.toFixed(1)}, longest ${good.longest_ms.toFixed(0)}; ${outcomesOf(report)})`;
  const isAll = report.outcomes['202'] === RATE_PER_S * SECONDS;
  findings.time(`p95 at ${RATE_PER_S}/s, open loop, ms`, value, `< ${P95_MS_MAX}`, isAll && good.p95_ms < P95_MS_MAX);
  findings.time(
    `from 202 to the signed receipt, p99 of ${signed.count}, ms`,
    `${signed.p99_ms.toFixed(0)} (median ${signed.p50_ms.toFixed(0)}, longest ${signed.longest_ms.toFixed(0)})`,
    `<= ${SIGNED_P99_MS_MAX}`,
    signed.p99_ms <= SIGNED_P99_MS_MAX,
  );
}
