/** Opens the parts of mailbox, in the order in which they depend on each other. They are closed in reverse. */
import { MemoryDisk } from '@ron/log';
import { formatUlid, type ProveProgressDto } from '@ron/proto';
import { AdminTasks, type TaskWork } from '@ron/service';
import type { MailboxConfig } from './config.ts';
import { Mailbox } from './mailbox/mailbox.ts';
import { mailboxMeters, measureParts, type MailboxMeters } from './metrics.ts';
import type { MailboxContext } from './service.ts';
import { Compactor, type CompactorEvent } from './store/compaction/compactor.ts';
import { proveLog } from './store/ledger/prove.ts';
import type { MailboxLog, ReplayProgress } from './store/mailbox-log.ts';

/** Amnesia: the same code on memory. */
const MEMORY_DIR = '/memory';

const dirOf = ({ amnesia, data_dir }: MailboxConfig): string => (amnesia.enabled ? MEMORY_DIR : data_dir!);

export async function openParts(context: MailboxContext) {
  const { config, events, runtime, metrics, resources, openAuth } = context;
  await openAuth({ dir: config.amnesia.enabled ? undefined : config.data_dir! });
  const meters = mailboxMeters(metrics);
  const operations = resources.use(await openMailbox(context, meters));
  const { log, live, topics, seen, receivers } = operations.parts;
  runtime.own('holds', () => receivers);
  const onEvent = (event: CompactorEvent): void => {
    if (event.kind === 'segment removed') meters.compacted_bytes.inc(event.bytes);
    if (event.kind === 'message damaged') {
      meters.integrity.at('damaged').inc();
      return events.publish({ ...event, id: formatUlid(event.id) });
    }
    if (event.kind !== 'ledger broken') return events.publish(event);
    meters.integrity.at('ledger').inc();
    events.publish({ kind: event.kind, problem: event.problem.text });
  };
  const compactor = new Compactor({ log, live, onEvent });
  const tasks = new AdminTasks<'prove'>((kind, run) => runtime.run(kind, ({ stopping }) => run(stopping)));
  measureParts(metrics, { measured: () => operations.topics(), topics, seen });
  const [send, settle] = [runtime.workQueue('send'), runtime.workQueue('settle')];
  return { operations, send, settle, tasks, prove: proveOf(log, dirOf(config)), compactor };
}

async function openMailbox(context: MailboxContext, meters: MailboxMeters): Promise<Mailbox> {
  const { config, current, events, fs, signal, reportOpening } = context;
  const { amnesia } = config;
  return await Mailbox.open({
    dir: dirOf(config),
    fs: amnesia.enabled ? new MemoryDisk(amnesia.bytes_max) : fs,
    segment_bytes: config.mailbox.segment_bytes,
    config: current,
    holds_max: config.mailbox.holds_max,
    onEvent: (event) => events.publish(event),
    onProgress: (progress) => reportOpening(`replaying: ${percent(progress)} % of the log`),
    onIntegrity: (reason) => meters.integrity.at(reason).inc(),
    signal,
  });
}

const percent = ({ bytes, bytes_total }: ReplayProgress): number =>
  bytes_total === 0 ? 100 : Math.floor((100 * bytes) / bytes_total);

/** Verifies the log and the ledger from disk. */
function proveOf(log: MailboxLog, dir: string): TaskWork {
  let progress: ProveProgressDto = { done_bytes: 0, total_bytes: 0 };
  return {
    run: async (signal) => {
      progress = { done_bytes: 0, total_bytes: 0 };
      const onProgress = (next: ProveProgressDto): void => void (progress = next);
      const report = await proveLog(log, dir, { signal, onProgress });
      progress = { ...progress, report };
    },
    progress: () => ({ ...progress }),
  };
}
