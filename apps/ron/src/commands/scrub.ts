/** `ron scrub`: verifies every stored byte. */
import type { ScrubInfo } from '@ron/proto';
import { command, CONNECTION_OPTIONS } from '../command.ts';
import type { Exit } from '../exits.ts';
import { followTask } from '../follow-task.ts';
import { columns, humanSize } from '../format.ts';
import { ProgressLine } from '../progress-line.ts';
import { withAdmin } from '../storage.ts';

export default command({
  name: 'scrub',
  usage: 'scrub [--no-wait]',
  about:
    'Reads and verifies all data of all volumes, at the rate of repair. Damaged records are quarantined and rebuilt from\n' +
    'other copies or parity. An interrupted scrub resumes where it stopped.',
  options: {
    ...CONNECTION_OPTIONS,
    'no-wait': { type: 'boolean', doc: 'Print the id of the task and exit.' },
  },
  args: [0, 0],
  examples: { 'ron scrub': 'show progress; exit with 1 if a record is damaged' },
  async run({ values, io, signal }): Promise<Exit> {
    return await withAdmin(values, io, signal, async (admin) => {
      const started = await admin.start('scrub', { signal });
      if (values['no-wait'] === true) {
        io.result(started.id, started);
        return 'ok';
      }
      using line = new ProgressLine('scrub', io);
      const done = await followTask(admin, started, signal, ({ progress }) => {
        const volumes = volumesIn(progress);
        const total_bytes = sum(volumes, (each) => each.used_bytes);
        const done_bytes = sum(volumes, (each) =>
          each.is_running ? each.bytes : each.ended_s > 0 ? each.used_bytes : 0,
        );
        line.update({ done_bytes: Math.min(done_bytes, total_bytes), total_bytes });
      });
      const volumes = volumesIn(done.progress);
      const rows = volumes.map(
        (each) =>
          [
            each.name,
            [
              `${each.records} records, ${humanSize(each.bytes)}, ${each.bad} damaged`,
              ...(each.problem === undefined ? [] : [`stopped: ${each.problem}`]),
              ...(each.late === undefined ? [] : [`late: ${each.late}`]),
            ].join(', '),
          ] as const,
      );
      io.result(columns(rows), { volumes });
      return volumes.some((each) => each.bad > 0) ? 'failed' : 'ok';
    });
  },
});

const volumesIn = (progress: Readonly<Record<string, unknown>>): readonly ScrubInfo[] =>
  (progress['volumes'] as readonly ScrubInfo[] | undefined) ?? [];

const sum = (volumes: readonly ScrubInfo[], of: (info: ScrubInfo) => number): number =>
  volumes.reduce((total, each) => total + of(each), 0);
