/** `ron volumes`: list and manage volumes. */
import { VOLUME_VERBS, type VolumeInfo, type VolumesAnswer } from '@ron/proto';
import { usage } from '../args.ts';
import { command, CONNECTION_OPTIONS } from '../command.ts';
import { humanSize } from '../format.ts';
import { withAdmin } from '../storage.ts';

export default command({
  name: 'volumes',
  usage: 'volumes [drain|undrain|lose|restore|remove VOLUME] [--force]',
  about:
    'Lists the volumes of storage. drain moves the data of one to the others, undrain cancels that; remove forgets one that\n' +
    'is drained or lost; lose gives one up: its copies are made again from the others, and compaction no longer waits for\n' +
    'it; restore takes back one that was lost, an empty directory in its place, or one that was used apart from the others.\n' +
    'Decisions persist across restarts. To add one, name it in data_dirs and send SIGHUP.',
  options: {
    ...CONNECTION_OPTIONS,
    force: { type: 'boolean', doc: 'Remove even a volume that may hold the last copy of a record.' },
  },
  args: [0, 2],
  words: VOLUME_VERBS,
  examples: {
    'ron volumes': 'a table',
    'ron volumes --json': '{"volumes":[...],"scrubs":[...]}',
    'ron volumes drain /mnt/b': 'empty it, then `ron volumes remove /mnt/b`',
    'ron volumes restore /mnt/b': 'after its disk was replaced',
  },
  async run({ values, args, io, signal }) {
    const [verb, name] = args;
    const found = VOLUME_VERBS.find((each) => each === verb);
    if (verb !== undefined && (found === undefined || name === undefined)) {
      throw usage({ name: 'volumes' }, `it is \`volumes\` alone, or one of ${VOLUME_VERBS.join(', ')} and a volume`);
    }
    const answer = await withAdmin(values, io, signal, (admin) =>
      found === undefined || name === undefined
        ? admin.volumes({ signal })
        : admin.decide(found, name, { signal, force: values.force === true }),
    );
    io.result([tableOf(answer.volumes), ...adviceOf(answer)].join('\n'), answer);
  },
});

function adviceOf({ incomplete }: VolumesAnswer): string[] {
  if (incomplete === undefined) return [];
  return [
    '',
    `Compaction is paused: ${incomplete}.`,
    'Bring the volumes back, or give up one that is gone for good: ron volumes lose VOLUME',
  ];
}

function tableOf(volumes: readonly VolumeInfo[]): string {
  const head = ['volume', 'life', 'state', 'domain', 'used', ''];
  const rows = volumes.map((each) => [
    each.name,
    each.is_current || each.life === 'lost' ? each.life : `${each.life}, catching up`,
    each.condition,
    each.domain === each.name ? '-' : each.domain,
    humanSize(each.used_bytes),
    each.reason,
  ]);
  const widths = head.map((_, column) => Math.max(...[head, ...rows].map((row) => row[column]!.length)));
  return [head, ...rows]
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column]!))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
