/** `ron repair`: shows missing copies and starts a repair. */
import type { StorageAdmin } from '@ron/client';
import { sleep } from '@ron/kernel/core';
import type { RepairStatus } from '@ron/proto';
import { usage } from '../args.ts';
import { command, CONNECTION_OPTIONS } from '../command.ts';
import { followTask } from '../follow-task.ts';
import { columns, humanSize } from '../format.ts';
import type { Io } from '../io.ts';
import { StatusLine } from '../status-line.ts';
import { withAdmin } from '../storage.ts';

const POLL_MS = 500;

export default command({
  name: 'repair',
  usage: 'repair status|start [--follow] [--no-wait]',
  about:
    'status prints how many copies are missing and the rate of repair; with --follow it runs until none is missing. start\n' +
    'begins a repair now instead of at the next interval, and waits until no copy is missing.',
  options: {
    ...CONNECTION_OPTIONS,
    follow: { type: 'boolean', doc: 'status: wait until no copy is missing.' },
    'no-wait': { type: 'boolean', doc: 'start: print the id of the task and exit.' },
  },
  args: [1, 1],
  words: ['status', 'start'],
  examples: {
    'ron repair status': 'print copies, deficit, queue and rate',
    'ron repair status --follow': 'show progress until no copy is missing',
    'ron repair start': 'repair now, after a disk was replaced',
  },
  async run({ values, args, io, signal }) {
    const [verb] = args;
    if (verb !== 'status' && verb !== 'start')
      throw usage({ name: 'repair' }, 'expected `repair status` or `repair start`');
    await withAdmin(values, io, signal, async (admin) => {
      if (verb === 'start' && values['no-wait'] === true) {
        const task = await admin.start('repair', { signal });
        return io.result(task.id, task);
      }
      if (verb === 'start') await repair(admin, io, signal);
      const status =
        values.follow === true ? await waitUntilComplete(admin, io, signal) : await admin.repairStatus({ signal });
      io.result(textOf(status), status);
    });
  },
});

async function repair(admin: StorageAdmin, io: Io, signal: AbortSignal): Promise<void> {
  const line = new Progress(io);
  try {
    const started = await admin.start('repair', { signal });
    await followTask(admin, started, signal, ({ progress }) => line.show(progress as unknown as RepairStatus));
  } finally {
    line[Symbol.dispose]();
  }
}

async function waitUntilComplete(admin: StorageAdmin, io: Io, signal: AbortSignal): Promise<RepairStatus> {
  using line = new Progress(io);
  for (;;) {
    const status = await admin.repairStatus({ signal });
    if (status.deficit === 0 && status.is_complete && !status.is_planning) return status;
    line.show(status);
    await sleep(POLL_MS, signal, 'repair.follow');
  }
}

class Progress implements Disposable {
  readonly #line: StatusLine;
  #first: RepairStatus | undefined;

  constructor(io: Io) {
    this.#line = new StatusLine(io);
  }

  show(status: RepairStatus): void {
    this.#first ??= status;
    const made = status.results.repaired - this.#first.results.repaired;
    const counts = `${made} repaired, ${status.deficit} missing, ${status.queued + status.inflight} pending`;
    this.#line.update(`repair: ${counts}, up to ${humanSize(status.allowed_bytes_per_s)}/s`);
  }

  [Symbol.dispose](): void {
    this.#line[Symbol.dispose]();
  }
}

function textOf(status: RepairStatus): string {
  const { last, rf, parity } = status.deficit_by_class;
  const { repaired, gone, failed } = status.results;
  const slowed =
    status.allowed_bytes_per_s < status.rate_bytes_per_s ? `, now ${humanSize(status.allowed_bytes_per_s)}/s` : '';
  return columns([
    ['copies', `${status.observed} of ${status.target}${status.is_complete ? '' : ' (no inventory yet)'}`],
    ['missing', `${status.deficit} (${last} last copies, ${rf} copies, ${parity} parity)`],
    ...(status.crowded === 0
      ? []
      : [['crowded', `${status.crowded} shards share a volume with another shard of their stripe`] as const]),
    ...(status.stripes?.problem === undefined ? [] : [['stripes', status.stripes.problem] as const]),
    ...((status.broken ?? 0) > 0
      ? ([['broken', `${status.broken} objects with missing parts (by the last compaction)`]] as const)
      : []),
    ['pending', `${status.queued} queued, ${status.inflight} in progress`],
    ['done', `${repaired} repaired, ${failed} failed, ${gone} gone, ${humanSize(status.bytes_total)}`],
    ['rate', `${humanSize(status.rate_bytes_per_s)}/s${slowed}`],
    ...status.problems.map((problem) => ['problem', problem] as const),
  ]);
}
