/** `ron volumes`: list and manage volumes. */
import { VOLUME_VERBS, type VolumeInfo, type VolumesAnswer } from '@ron/proto';
import { usage } from '../args.ts';
import { command, CONNECTION_OPTIONS } from '../command.ts';
import { humanSize, table } from '../format.ts';
import { withAdmin } from '../storage.ts';

export default command({
  name: 'volumes',
  usage: 'volumes [drain|undrain|lose|restore|remove VOLUME] [--force]',
  about:
    'Lists the volumes of storage. drain moves the data of a volume to the others; undrain cancels that. remove takes a\n' +
    'drained or lost volume out of the set. lose declares a volume lost: its copies are rebuilt from the others, and\n' +
    'compaction no longer waits for it. restore takes back a lost volume, an empty directory in its place, or a volume that\n' +
    'was used without the others. Decisions persist across restarts. To add a volume, name it in data_dirs and send SIGHUP.',
  options: {
    ...CONNECTION_OPTIONS,
    force: { type: 'boolean', doc: 'remove: even if the volume may hold the last copy of a record.' },
  },
  args: [0, 2],
  words: VOLUME_VERBS,
  examples: {
    'ron volumes': 'print a table',
    'ron volumes --json': '{"volumes":[...],"scrubs":[...]}',
    'ron volumes drain /mnt/b': 'move its data away, then `ron volumes remove /mnt/b`',
    'ron volumes restore /mnt/b': 'take it back after its disk was replaced',
  },
  async run({ values, args, io, signal }) {
    const [verb, name] = args;
    const found = VOLUME_VERBS.find((each) => each === verb);
    if (verb !== undefined && (found === undefined || name === undefined)) {
      throw usage({ name: 'volumes' }, `expected \`volumes\` alone, or one of ${VOLUME_VERBS.join(', ')} and a volume`);
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
    'Reconnect the volumes. If one is gone for good: ron volumes lose VOLUME',
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
  return table(head, rows);
}
