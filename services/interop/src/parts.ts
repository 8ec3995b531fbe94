/** Opens the parts of interop, in the order in which they depend on each other. They are closed in reverse. */
import { join } from 'node:path';
import { RonError, type Cell, type Deadline, type WorkQueue } from '@ron/kernel';
import { AuditFile } from './audit/audit-file.ts';
import { AuditSink } from './audit/audit-sink.ts';
import type { AuditEvent } from './audit/audit-event.ts';
import { openBridge } from './bridge/open-bridge.ts';
import { DeliveryRecorder } from './deliveries/delivery-recorder.ts';
import { RecentDeliveries } from './deliveries/recent-deliveries.ts';
import { RefusalSums, type RefusalCounters } from './deliveries/refusal-sums.ts';
import { Sender } from './delivery/sender.ts';
import { FullTopics } from './mailbox/full-topics.ts';
import type { MailboxDrain, MailboxSends } from './mailbox/mailbox.ts';
import { measureParts } from './metrics.ts';
import { MissingLogs } from './missing-logs.ts';
import { newPolicyMeta, type PolicyMeta } from './policy-meta.ts';
import { openProviders } from './providers/open-providers.ts';
import type { Providers } from './providers/providers.ts';
import { kmsSecrets } from './providers/secrets/kms-secrets.ts';
import { openReceipts } from './receipts/open-receipts.ts';
import type { Receipts } from './receipts/receipts.ts';
import type { InteropContext } from './service.ts';
import { Spool } from './spool/spool.ts';
import { SpoolDrainer, type DrainEvent } from './spool/spool-drainer.ts';
import { openKmsAccess, type KmsAccess } from './upstreams/kms-access.ts';
import { openUpstreams, type Upstreams } from './upstreams/open-upstreams.ts';
import { AddressRates } from './webhooks/address-rates.ts';
import { SourceChecks } from './webhooks/source-checks.ts';
import { Intake } from './webhooks/intake.ts';
import { ProviderLimiter } from './webhooks/provider-limiter.ts';
import { UnverifiedBytes } from './webhooks/unverified-bytes.ts';

export async function openParts(context: InteropContext) {
  const { config, current, events, runtime, metrics, resources, openAuth } = context;
  const dir = config.amnesia.enabled ? undefined : config.data_dir!;
  if (dir !== undefined) await lockDirectory(context, dir);
  await openAuth({ dir });
  const queues = {
    reads: runtime.workQueue('reads'),
    puts: runtime.workQueue('puts'),
    webhooks: runtime.workQueue('webhooks'),
  };
  const policy = runtime.cell('policy_meta', newPolicyMeta());
  const { audit, sink, recorder, recent } = await openRecords(context, dir);
  const upstreams = openUpstreams({ config, runtime, policy, events });
  const missing = dir === undefined ? undefined : resources.use(await openMissing(context, dir));
  const spool = resources.use(await openSpool(context, dir, missing));
  const kms = openKmsAccess(context, upstreams.kms, upstreams.connect_ms);
  const receipts = resources.use(await openReceipts(context, { dir, missing, kms }));
  await missing?.record();
  const providers = resources.use(await openProviderFiles(context, { dir, policy, kms, recorder }));
  const { sender, drainer } = openDelivery(context, { queue: queues.webhooks, upstreams, spool, receipts });
  const unverified = new UnverifiedBytes(config.webhooks.unverified_bytes);
  const intake = new Intake({
    providers,
    source: new SourceChecks(providers, new AddressRates(() => current.value.webhooks.address_rps)),
    unverified,
    limits: new ProviderLimiter(),
    sender,
    recorder,
    tolerance_ms: () => current.value.webhooks.tolerance,
    bodyDeadline: (parent) => runtime.deadline('body', { parent }),
    requestDeadline: (parent) => runtime.deadline('request', { parent }),
  });
  const bridge = openBridge(context, upstreams, queues.puts);
  const { sentinel } = upstreams;
  measureParts(metrics, { recorder, audit, sink, providers, receipts, spool, drainer, unverified, sentinel });
  const writeAudit = (event: AuditEvent): void => void audit.pushDropOldest(event);
  return {
    queues,
    upstreams,
    sentinel,
    spool,
    receipts,
    missing,
    providers,
    sender,
    drainer,
    intake,
    unverified,
    recent,
    live: events,
    recorder,
    sink,
    audit: writeAudit,
    bridge,
  };
}

/** One process at a time: the replay of a second one would cut the logs of the first. */
async function lockDirectory({ fs, resources }: InteropContext, dir: string): Promise<void> {
  await fs.makeDir(dir);
  const lock = fs.lock?.(join(dir, 'lock'));
  if (fs.lock !== undefined && lock === undefined)
    throw new RonError('conflict', `${dir} is in use by another process`);
  if (lock !== undefined) resources.use(lock);
}

/** The outcomes of webhooks: counters, the recent list, events and the audit log. */
async function openRecords({ config, runtime, events, fs, resources }: InteropContext, dir: string | undefined) {
  const audit = runtime.mpsc<AuditEvent>('audit');
  const counters: RefusalCounters = new Map();
  const recent = new RecentDeliveries();
  const sums = new RefusalSums(runtime.cell('counters', counters));
  const recorder = new DeliveryRecorder({ recent, sums, audit, events });
  const file = dir !== undefined && config.audit.sink === 'file' ? resources.use(new AuditFile(fs, dir)) : undefined;
  const toStdout = config.audit.sink === 'stdout' && !config.amnesia.enabled;
  const sink = new AuditSink({
    channel: audit,
    write: file === undefined ? (toStdout ? writeStdout : undefined) : (lines) => file.write(lines),
    onSecond: () => recorder.recordSums(),
    onProblem: (problem) => events.publish({ kind: 'audit failed', problem }),
  });
  return { audit, sink, recorder, recent };
}

function writeStdout(lines: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(lines, (error) => (error ? reject(error) : resolve()));
  });
}

async function openMissing({ fs, log, events }: InteropContext, dir: string): Promise<MissingLogs> {
  const onMissing = (problem: string): void => events.publish({ kind: 'log missing', problem });
  return await MissingLogs.open({ dir, fs, onMissing, warn: (message) => log.warn(message) });
}

async function openSpool(
  { config, fs, events, signal }: InteropContext,
  dir: string | undefined,
  missing: MissingLogs | undefined,
): Promise<Spool> {
  const { bytes_max, deliveries_max } = config.spool;
  return await Spool.open({
    dir: dir && join(dir, 'spool'),
    fs,
    extent: missing?.extents.spool,
    bytes_max,
    deliveries_max,
    onEvent: (event) => events.publish(event),
    signal,
  });
}

interface ProviderParts {
  readonly dir: string | undefined;
  readonly policy: Cell<PolicyMeta>;
  readonly kms: KmsAccess | undefined;
  readonly recorder: DeliveryRecorder;
}

async function openProviderFiles(
  { config, runtime, env, fs, log, events, signal }: InteropContext,
  { dir, policy, kms, recorder }: ProviderParts,
): Promise<Providers> {
  return await openProviders({
    dir,
    env,
    fs,
    kms: kms && kmsSecrets(kms),
    caches: config.secrets.cache,
    policy,
    routes: runtime.cell('routing_table', new Map()),
    events,
    warn: (message) => log.warn(message),
    onRemoved: (provider) => recorder.forget(provider),
    signal,
  });
}

interface DeliveryParts {
  readonly queue: WorkQueue;
  readonly upstreams: Upstreams;
  readonly spool: Spool;
  readonly receipts: Receipts;
}

/** The sender and the drainer share the list of full topics. */
function openDelivery(
  { current, runtime, events }: InteropContext,
  { queue, upstreams, spool, receipts }: DeliveryParts,
) {
  const full = new FullTopics();
  const mailbox = upstreams.sends ?? NO_MAILBOX;
  const writing = (): Deadline => runtime.deadline('request');
  const sender = new Sender({
    queue,
    mailbox,
    spool,
    receipts,
    full,
    spool_after_ms: () => current.value.spool.after,
    writing,
  });
  const onEvent = (event: DrainEvent): void => events.publish(event);
  const drainer = new SpoolDrainer({ spool, mailbox, receipts, full, writing, onEvent });
  return { sender, drainer };
}

/** Without `interop.mailbox_url`. */
const NO_MAILBOX: MailboxDrain & MailboxSends = {
  missing: 'interop.mailbox_url is not set',
  isReady: false,
  canTry: false,
  send: () => Promise.reject(new RonError('not_ready', 'interop.mailbox_url is not set', { op: 'send' })),
};
