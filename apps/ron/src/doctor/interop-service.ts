/** Checks interop: its providers and their secrets, brownout, the spool, unsigned receipts, its port and its disk. */
import { stat } from 'node:fs/promises';
import { InteropClient, TRANSPORT_DEFAULTS, type TransportInit } from '@ron/client';
import { sched } from '@ron/kernel/core';
import type { BrownoutDto, SecretDto, WebhookProviderDto } from '@ron/proto';
import { messageOf, systemCode } from '../exits.ts';
import { humanDuration, humanSize } from '../format.ts';
import { socketUrl, type Home } from '../home.ts';
import type { Io } from '../io.ts';
import { metricsOf, sumOf } from '../metrics-text.ts';
import { dateOf } from '../names/show-name.ts';
import { counted } from '../queue/mailbox-service.ts';
import { readinessOf } from '../readiness.ts';
import { withClient } from '../service-client.ts';
import type { Finding } from './finding.ts';

const CALL_MS = 5000;
const HOUR_MS = 3600 * 1000;
/** Providers with a problem that are listed one by one. */
const LISTED_MAX = 20;
/** A secret that still verifies deliveries this long before its end is reported. */
const ENDING_MS = 6 * HOUR_MS;
/** A secret is in use if it verified a delivery within this time. */
const USED_MS = HOUR_MS;
/** A receipt is signed within a second: kms is away if one waits for this long. */
const SIGN_LAG_MS = 60_000;

/** Checks the running interop. Its gates are checked with those of all services. */
export async function checkInterop(home: Home, url: string, io: Io, signal: AbortSignal): Promise<Finding[]> {
  const { RON_URL: _, ...env } = io.env;
  const open = (init: TransportInit): InteropClient =>
    new InteropClient({ ...init, deadline_ms: CALL_MS, policy: TRANSPORT_DEFAULTS.policy });
  const values = { dir: home.dir };
  const own = [...(await checkPort(url, signal)), ...(await checkInteropDirectory(home))];
  try {
    const [providers, brownout] = await withClient('interop', open, values, { env }, signal, (client) =>
      Promise.all([client.providers({ signal }), client.brownout({ signal })]),
    );
    const metrics = await metricsOf(socketUrl(home, 'interop'), signal);
    const now_ms = sched.wall_ms();
    return [...providerFindings(providers, now_ms), ...brownoutFindings(brownout), ...metricFindings(metrics), ...own];
  } catch (error) {
    const fix = `${messageOf(error)}; see "Interop" in docs/operations.md`;
    return [{ level: 'warn', what: 'the providers of webhooks cannot be checked', fix }, ...own];
  }
}

export function providerFindings(providers: readonly WebhookProviderDto[], now_ms: number): Finding[] {
  const problems = providers.flatMap((each) => [...closedFindings(each), ...secretFindings(each, now_ms)]);
  const ok: Finding = { level: 'ok', what: `${counted(providers.length, 'provider')} of webhooks` };
  const more = problems.length - LISTED_MAX;
  const listed = problems.slice(0, LISTED_MAX);
  if (more <= 0) return [ok, ...listed];
  return [ok, ...listed, { level: 'warn', what: `${more} more problems of providers`, fix: 'run `ron hooks list`' }];
}

function closedFindings({ name, problem, secrets }: WebhookProviderDto): Finding[] {
  if (problem === undefined) return secrets.flatMap((each) => notLoadedFindings(name, each));
  const fix = `see "Provider closed" in docs/operations.md, or set it again with \`ron hooks add ${name}\``;
  return [{ level: 'fail', what: `provider ${name} is closed: ${problem}`, fix }];
}

/** The other secret of the provider is loaded. */
function notLoadedFindings(name: string, { version, problem }: SecretDto): Finding[] {
  if (problem === undefined) return [];
  const what = `secret v${version} of ${name} is not loaded, and deliveries signed with it are refused: ${problem}`;
  return [{ level: 'warn', what, fix: 'see "Provider closed" in docs/operations.md' }];
}

/** A sender that was not changed is refused once its secret ends. */
function secretFindings({ name, secrets }: WebhookProviderDto, now_ms: number): Finding[] {
  return secrets.flatMap(({ version, ends_ms, last_used_ms }): Finding[] => {
    const isEnding = ends_ms !== undefined && ends_ms > now_ms && ends_ms - now_ms <= ENDING_MS;
    const isUsed = last_used_ms !== undefined && now_ms - last_used_ms <= USED_MS;
    if (!isEnding || !isUsed) return [];
    const left = humanDuration(ends_ms - now_ms);
    const what = `secret v${version} of ${name} ends in ${left}, and deliveries are still signed with it`;
    return [{ level: 'warn', what, fix: `enter the newest secret at the sender; \`ron hooks show ${name}\`` }];
  });
}

export function brownoutFindings({ mode, until_ms, why, active, upstreams }: BrownoutDto): Finding[] {
  if (mode !== 'auto') {
    const until = until_ms === undefined ? '' : ` until ${dateOf(until_ms / 1000)}`;
    const reason = why === undefined || why === '' ? '' : `: ${why}`;
    const what = `brownout is set to ${mode} by an operator${until}${reason}`;
    return [{ level: 'warn', what, fix: 'end it with `ron hooks brownout auto`' }];
  }
  if (!active) return [];
  const ill = upstreams.filter((each) => each.active).map(({ upstream }) => upstream);
  const fix = `check ${ill.join(' and ')}; see "Brownout" in docs/operations.md`;
  return [{ level: 'warn', what: `brownout because of ${ill.join(' and ')}: the bridge sheds load`, fix }];
}

export function metricFindings(metrics: string): Finding[] {
  const waiting = sumOf(metrics, 'spool_deliveries');
  const lag_ms = sumOf(metrics, 'receipt_sign_lag_seconds') * 1000;
  const dropped = sumOf(metrics, 'audit_drop_total');
  const [kept, kept_max] = [sumOf(metrics, 'receipts_kept'), sumOf(metrics, 'receipts_kept_max')];
  return [
    ...(kept_max > 0 ? [receiptsFinding(kept, kept_max)] : []),
    ...(waiting > 0 ? [spoolFinding(waiting, sumOf(metrics, 'spool_bytes'))] : []),
    ...(lag_ms > SIGN_LAG_MS ? [lagFinding(lag_ms)] : []),
    ...(dropped > 0 ? [droppedFinding(dropped)] : []),
  ];
}

const receiptsFinding = (kept: number, kept_max: number): Finding => ({
  level: 'ok',
  what: `${counted(kept, 'receipt')} kept, room for ${kept_max} (\`receipts.max_bytes\`)`,
});

const spoolFinding = (waiting: number, bytes: number): Finding => ({
  level: 'warn',
  what: `${counted(waiting, 'webhook')}, ${humanSize(bytes)}, ${waiting === 1 ? 'waits' : 'wait'} in the spool for mailbox`,
  fix: 'check mailbox; see "Mailbox away from interop" in docs/operations.md',
});

const lagFinding = (lag_ms: number): Finding => ({
  level: 'warn',
  what: `the oldest unsigned receipt has waited for ${humanDuration(lag_ms)}`,
  fix: 'check kms, which signs receipts; webhooks are accepted meanwhile',
});

const droppedFinding = (dropped: number): Finding => ({
  level: 'warn',
  what: `${counted(dropped, 'audit event')} of interop dropped since its start`,
  fix: 'check the disk of interop, or the process that reads its standard output',
});

/** Providers call the port, not the socket. */
async function checkPort(url: string, signal: AbortSignal): Promise<Finding[]> {
  try {
    await readinessOf(url, signal);
    return [];
  } catch {
    const fix = 'webhooks do not arrive; restart `ron up`';
    return [{ level: 'fail', what: `${url} of interop cannot be reached`, fix }];
  }
}

/** No finding in amnesia, or before the first start. */
export async function checkInteropDirectory(home: Home): Promise<Finding[]> {
  const dir = home.of('interop').data;
  try {
    const { mode } = await stat(dir);
    if ((mode & 0o077) === 0) return [];
    return [{ level: 'warn', what: `${dir} is open to other users`, fix: `chmod 700 ${dir}` }];
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return [];
    return [{ level: 'warn', what: `${dir} cannot be read (${systemCode(error) ?? messageOf(error)})` }];
  }
}
