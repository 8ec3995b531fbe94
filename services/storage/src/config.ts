/** The configuration of storage: the listener's keys, the process's keys and its own, named as operators know them. */
import { defineConfig, key } from '@ron/config';
import { PROCESS_KEYS } from '@ron/service';
import type { ConfigOf } from '@ron/config';
import { AUTH_KEYS, checkAuthKeys } from '@ron/auth/service';
import { checkIngressKeys, INGRESS_KEYS } from '@ron/ingress';
import { areApart, DIRS_MAX, parseDataDir } from './volumes/data-dirs.ts';

const KEYS = {
  ...PROCESS_KEYS,
  ...INGRESS_KEYS,
  data_dirs: key.list({
    default: [],
    items_max: DIRS_MAX,
    expects: 'directories',
    doc: 'Where objects are kept; with several, copies lie in different ones. Each may be followed by `@domain=NAME` (those of one domain fail together; default: each is its own), `@weight=NUMBER` (how much it gets; default: the size of its file system) and `@draining` (it is being emptied). With several, one that is added by a reload is filled, one that is taken out is emptied and then let go. Needed unless amnesia is on, which ignores it.',
    reloadable: true,
  }),
  volumes_file: key.optional(
    key.text({
      doc: 'Where the volumes of this node are remembered. A start that misses a remembered volume names it. Default: not remembered.',
    }),
  ),
  'storage.chunk_size': key.size({
    default: '64KiB',
    min: '64KiB',
    max: '1MiB',
    doc: 'Bytes of a chunk, a power of two. Objects already stored keep theirs.',
  }),
  'storage.object_bytes_max': key.size({ default: '5TiB', min: '1KiB', max: '5TiB', doc: 'The largest object.' }),
  'storage.cache_bytes': key.size({
    default: '64MiB',
    min: '1MiB',
    max: '1TiB',
    doc: 'Memory for verified chunks. Prepared answers take as much again, small objects an eighth of it, manifests another eighth (at least 1 MiB).',
  }),
  'storage.fast_path': key.boolean({
    default: true,
    doc: 'Answer objects of up to 1 MiB that are in memory, and small ones in the page cache, before routing, most of them before parsing. The answers are the same without. Not before parsing with TLS, `auth.reads` or `server.access_log`.',
  }),
  'storage.segment_bytes': key.size({
    default: '256MiB',
    min: '4MiB',
    max: '4095MiB',
    doc: 'A segment file is closed when it would grow beyond this.',
  }),
  'storage.get_workers': key.integer({ default: 64, min: 1, max: 4096, doc: 'Reads that touch the disk at once.' }),
  'storage.put_workers': key.integer({ default: 128, min: 1, max: 4096, doc: 'Writes at once.' }),
  'storage.get_deadline': key.duration({
    default: '2s',
    min: '10ms',
    max: '5m',
    doc: 'A read up to its first byte.',
    reloadable: true,
  }),
  'storage.put_wait': key.duration({
    default: '5s',
    min: '10ms',
    max: '5m',
    doc: 'How long a write waits for a worker.',
    reloadable: true,
  }),
  'storage.put_deadline': key.duration({
    default: '30s',
    min: '100ms',
    max: '1h',
    doc: 'From the last byte of a write to its acknowledgement.',
    reloadable: true,
  }),
  'storage.lease': key.optional(
    key.duration({
      min: '1s',
      max: '3650d',
      doc: 'How long an object that is not pinned is kept after it was last put. Default: for ever.',
    }),
  ),
  'storage.compact_interval': key.duration({
    default: '24h',
    min: '1m',
    max: '24d',
    doc: 'How often a compaction starts by itself, give or take a tenth.',
    reloadable: true,
  }),
  'storage.compact_live_ratio': key.decimal({
    default: 0.5,
    min: 0,
    max: 1,
    doc: 'Segments of which a smaller part is needed are rewritten by a compaction.',
  }),
  'storage.compact_pacing': key.rate({
    default: '50MiB/s',
    min: '64KiB/s',
    doc: 'How fast a compaction reads and writes.',
  }),
  'durability.replication_factor': key.optional(
    key.integer({
      min: 1,
      max: DIRS_MAX,
      doc: 'Copies of each record, in different directories. Default: 2 with several directories, 1 with one.',
    }),
  ),
  'durability.write_min': key.optional(
    key.integer({
      min: 1,
      max: DIRS_MAX,
      doc: 'Copies that are durable before a write is acknowledged. Default: the replication factor.',
    }),
  ),
  'durability.degraded': key.boolean({
    default: false,
    doc: 'Answer 404 for objects that are not found while directories are away which may hold them. Without it such reads get 503.',
    reloadable: true,
  }),
  'durability.ec': key.boolean({
    default: false,
    doc: 'Whether chunks of large objects are turned from copies into stripes with parity, within about durability.repair_interval after they were written, or when a repair is asked for. What makes no stripe, such as an object of one chunk, has one copy more than there are parity shards.',
  }),
  'durability.ec_data_shards': key.integer({ default: 6, min: 1, max: 20, doc: 'Chunks of a stripe.' }),
  'durability.ec_parity_shards': key.integer({
    default: 3,
    min: 1,
    max: 10,
    doc: 'Parity shards of a stripe: so many directories may be lost, whichever, and no object with them; before its stripes are made, an object survives the loss of all but one of its copies.',
  }),
  'durability.repair_pacing': key.rate({
    default: '50MiB/s',
    min: '64KiB/s',
    doc: 'How fast repair, scrub and the making of stripes read and write, all together. They give way when reads get slower.',
    reloadable: true,
  }),
  'durability.repair_interval': key.duration({
    default: '10m',
    min: '1s',
    max: '24d',
    doc: 'How often it is looked whether everything has its copies, give or take a tenth. After a failed read or a lost directory that happens at once.',
    reloadable: true,
  }),
  'durability.repair_workers': key.integer({ default: 4, min: 1, max: 64, doc: 'Repairs at once.' }),
  'durability.scrub_interval': key.duration({
    default: '14d',
    min: '1m',
    max: '24d',
    doc: 'Every byte is read and checked within this time, give or take a tenth.',
  }),
  'uploads.expiry': key.duration({
    default: '24h',
    min: '1s',
    max: '24d',
    doc: 'An upload is forgotten this long after it was last added to.',
  }),
  'uploads.max': key.integer({
    default: 256,
    min: 1,
    max: 65_536,
    doc: 'Uploads that are not finished; more get 429. Each takes up to 0.7 MiB of memory.',
  }),
  'auth.reads': key.boolean({ default: false, doc: 'Whether reads need the scope storage:get.' }),
  ...AUTH_KEYS,
  'amnesia.enabled': key.boolean({ default: false, doc: 'Keep everything in memory and write to no disk.' }),
  'amnesia.bytes_max': key.size({ default: '256MiB', min: '1MiB', max: '1TiB', doc: 'Memory for objects in amnesia.' }),
};

export const schema = defineConfig(KEYS, (config, report) => {
  checkIngressKeys(config, report);
  checkAuthKeys(config, report);
  const { storage, amnesia, data_dirs } = config;
  if (!Number.isInteger(Math.log2(storage.chunk_size))) report('storage.chunk_size', 'a power of two');
  if (data_dirs.length === 0 && !amnesia.enabled) report('data_dirs', 'a directory, unless amnesia.enabled is set');
  const dirs = data_dirs.flatMap((item) => parseDataDir(item)?.dir ?? []);
  if (dirs.length < data_dirs.length) report('data_dirs', 'DIR[@domain=NAME][@weight=NUMBER][@draining] for each');
  if (!areApart(dirs)) report('data_dirs', 'each directory once, and none in another');
  checkDurability(config, report);
});

type Check = NonNullable<Parameters<typeof defineConfig<typeof KEYS>>[1]>;
type Given = Parameters<Check>;

function checkDurability({ durability, data_dirs, amnesia }: Given[0], report: Given[1]): void {
  // Those that are to be emptied hold nothing in the end.
  const staying = data_dirs.filter((item) => parseDataDir(item)?.isDraining !== true);
  const places = amnesia.enabled ? 1 : staying.length;
  const { replication_factor = !amnesia.enabled && data_dirs.length > 1 ? 2 : 1, write_min = 1, ec } = durability;
  if (replication_factor > Math.max(1, places)) {
    report('durability.replication_factor', `at most as many as there are directories that stay, ${places}`);
  }
  if (write_min > replication_factor) report('durability.write_min', `at most ${replication_factor}, the copies`);
  const shards = durability.ec_data_shards + durability.ec_parity_shards;
  if (ec && shards > places) report('durability.ec', `${shards} directories, one for each shard of a stripe`);
}

export type StorageConfig = ConfigOf<typeof schema>;
