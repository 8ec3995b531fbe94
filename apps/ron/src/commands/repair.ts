/** `ron repair`: what is missing, and how its repair goes on. */
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
    'status tells whether everything has its copies, and how fast what is missing is made again; with --follow until it\n' +
    'is. start looks at once instead of at the next interval, and waits until nothing is missing.',
  options: {
    ...CONNECTION_OPTIONS,
    follow: { type: 'boolean', doc: 'status: go on until nothing is missing.' },
    'no-wait': { type: 'boolean', doc: 'start: print the task and leave it to itself.' },
  },
  args: [1, 1],
  words: ['status', 'start'],
  examples: {
    'ron repair status': 'copies, deficit, queue and rate',
    'ron repair status --follow': 'with a line that moves, until nothing is missing',
    'ron repair start': 'now, after a disk was replaced',
  },
  async run({ values, args, io, signal }) {
    const [verb] = args;
    if (verb !== 'status' && verb !== 'start')
      throw usage({ name: 'repair' }, 'it is `repair status` or `repair start`');
    await withAdmin(values, io, signal, async (admin) => {
      if (verb === 'start' && values['no-wait'] === true) {
        const task = await admin.start('repair', { signal });
        return io.result(task.id, task);
      }
      if (verb === 'start') await repair(admin, io, signal);
      const status = values.follow === true ? await whole(admin, io, signal) : await admin.repairStatus({ signal });
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

async function whole(admin: StorageAdmin, io: Io, signal: AbortSignal): Promise<RepairStatus> {
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
    const what = `${made} made again, ${status.deficit} missing, ${status.queued + status.inflight} in hand`;
    this.#line.update(`repair: ${what}, up to ${humanSize(status.allowed_bytes_per_s)}/s`);
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
      : [['crowded', `${status.crowded} shards lie with another of their stripe`] as const]),
    ...(status.stripes?.problem === undefined ? [] : [['stripes', status.stripes.problem] as const]),
    ...((status.broken ?? 0) > 0
      ? ([['broken', `${status.broken} objects with missing parts (by the last compaction)`]] as const)
      : []),
    ['in hand', `${status.queued} queued, ${status.inflight} being repaired`],
    ['so far', `${repaired} repaired, ${failed} failed, ${gone} gone, ${humanSize(status.bytes_total)}`],
    ['rate', `${humanSize(status.rate_bytes_per_s)}/s${slowed}`],
    ...status.problems.map((problem) => ['problem', problem] as const),
  ]);
}
