/** Opens the parts of interop, in the order in which they depend on each other. They are closed in reverse. */
import { join } from 'node:path';
import { RonError, type Deadline, type WorkQueue } from '@ron/kernel';
import { AuditFile } from './audit/audit-file.ts';
import { AuditSink } from './audit/audit-sink.ts';
import type { AuditEvent } from './audit/audit-event.ts';
import { openBridge } from './bridge/open-bridge.ts';
import { DeliveryRecorder } from './deliveries/delivery-recorder.ts';
import { RecentDeliveries } from './deliveries/recent-deliveries.ts';
import { RefusalSums, type RefusalCounters } from './deliveries/refusal-sums.ts';
import { FullTopics } from './delivery/full-topics.ts';
import { Sender, type MailboxSends } from './delivery/sender.ts';
import { measureParts } from './metrics.ts';
import { openProviders } from './providers/open-providers.ts';
import type { Providers } from './providers/providers.ts';
import { kmsSecrets } from './providers/kms-secrets.ts';
import { openReceipts } from './receipts/open-receipts.ts';
import type { Receipts } from './receipts/receipts.ts';
import type { InteropContext } from './service.ts';
import { Spool } from './spool/spool.ts';
import { SpoolDrainer, type DrainEvent, type MailboxDrain } from './spool/spool-drainer.ts';
import { openKmsAccess, type KmsAccess } from './upstreams/kms-access.ts';
import { openUpstreams, type Upstreams } from './upstreams/open-upstreams.ts';
import { AddressRates } from './webhooks/address-rates.ts';
import { Door } from './webhooks/door.ts';
import { Intake } from './webhooks/intake.ts';
import { ProviderLimits } from './webhooks/provider-limits.ts';
import { UnverifiedBytes } from './webhooks/unverified-bytes.ts';

export async function openParts(context: InteropContext) {
  const { config, current, events, runtime, metrics, resources, openAuth } = context;
  const dir = config.amnesia.enabled ? undefined : config.data_dir!;
  await openAuth({ dir });
  const queues = {
    reads: runtime.workQueue('reads'),
    puts: runtime.workQueue('puts'),
    webhooks: runtime.workQueue('webhooks'),
  };
  const { audit, sink, recorder, recent } = await openRecords(context, dir);
  const upstreams = openUpstreams({ config, runtime, events });
  const spool = resources.use(await openSpool(context, dir));
  const kms = openKmsAccess(context, upstreams.kms, upstreams.connect_ms);
  const receipts = resources.use(await openReceipts(context, dir, kms));
  const providers = resources.use(await openProviderFiles(context, dir, kms, recorder));
  const { sender, drainer } = openDelivery(context, { queue: queues.webhooks, upstreams, spool, receipts });
  const intake = new Intake({
    providers,
    door: new Door(providers, new AddressRates(() => current.value.webhooks.address_rps)),
    unverified: new UnverifiedBytes(config.webhooks.unverified_bytes),
    limits: new ProviderLimits(),
    sender,
    recorder,
    tolerance_ms: () => current.value.webhooks.tolerance,
    requestDeadline: (parent) => runtime.deadline('request', { parent }),
  });
  const bridge = openBridge(context, upstreams);
  measureParts(metrics, { recorder, audit, sink, providers, receipts, spool, sentinel: upstreams.sentinel });
  const writeAudit = (event: AuditEvent): void => void audit.pushDropOldest(event);
  return {
    queues,
    upstreams,
    sentinel: upstreams.sentinel,
    spool,
    receipts,
    providers,
    sender,
    drainer,
    intake,
    recent,
    live: events,
    recorder,
    sink,
    audit: writeAudit,
    ...bridge,
  };
}

/** The outcomes of webhooks: counters, the recent list, events and the audit log. */
async function openRecords({ config, runtime, events, fs, resources }: InteropContext, dir: string | undefined) {
  const audit = runtime.mpsc<AuditEvent>('audit');
  const counters: RefusalCounters = new Map();
  const recent = new RecentDeliveries();
  const sums = new RefusalSums(runtime.cell('counters', counters));
  const recorder = new DeliveryRecorder({ recent, sums, audit, events });
  const file =
    dir !== undefined && config.audit.sink === 'file' ? resources.use(await AuditFile.open(fs, dir)) : undefined;
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

async function openSpool({ config, fs, events, signal }: InteropContext, dir: string | undefined): Promise<Spool> {
  const { bytes_max, deliveries_max } = config.spool;
  return await Spool.open({
    dir: dir && join(dir, 'spool'),
    fs,
    bytes_max,
    deliveries_max,
    onEvent: (event) => events.publish(event),
    signal,
  });
}

async function openProviderFiles(
  { config, runtime, env, fs, log, events, signal }: InteropContext,
  dir: string | undefined,
  kms: KmsAccess | undefined,
  recorder: DeliveryRecorder,
): Promise<Providers> {
  return await openProviders({
    dir,
    env,
    fs,
    kms: kms && kmsSecrets(kms),
    caches: config.secrets.cache,
    policies: runtime.cell('policy_meta', new Map()),
    routes: runtime.cell('routing_table', new Map()),
    events,
    warn: (what) => log.warn(what),
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
