/** The configuration of storage: the keys of the listener, of the process and its own. */
import { defineConfig, key } from '@ron/config';
import { PROCESS_KEYS } from '@ron/service';
import type { ConfigOf } from '@ron/config';
import { AUTH_KEYS, checkAuthKeys, checkPassportKeys } from '@ron/auth/service';
import { checkIngressKeys, INGRESS_KEYS } from '@ron/ingress';
import { areApart, DIRS_MAX, parseDataDir } from './volumes/data-dirs.ts';

const KEYS = {
  ...PROCESS_KEYS,
  ...INGRESS_KEYS,
  data_dirs: key.list({
    default: [],
    items_max: DIRS_MAX,
    expects: 'directories',
    doc: 'The directories for objects; with several, copies are in different ones. Options of each: `@domain=NAME` (directories of one domain fail together; default: its own domain), `@weight=NUMBER` (its share of the data; default: the size of its file system) and `@draining` (its data moves to the others). A reload that adds a directory fills it; one that removes a directory drains it first. Required unless amnesia is enabled, which ignores it.',
    reloadable: true,
  }),
  volumes_file: key.optional(
    key.text({
      doc: 'The file that records the volumes of this node. A start without a recorded volume names it. Default: none.',
    }),
  ),
  'storage.chunk_size': key.size({
    default: '64KiB',
    min: '64KiB',
    max: '1MiB',
    doc: 'The chunk size, a power of two. Stored objects keep theirs.',
  }),
  'storage.object_bytes_max': key.size({ default: '5TiB', min: '1KiB', max: '5TiB', doc: 'The largest object.' }),
  'storage.cache_bytes': key.size({
    default: '64MiB',
    min: '1MiB',
    max: '1TiB',
    doc: 'Memory for verified chunks. Prepared answers use the same amount again, small objects an eighth of it, manifests another eighth (at least 1 MiB).',
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
  'storage.get_workers': key.integer({ default: 64, min: 1, max: 4096, doc: 'Concurrent reads from disk.' }),
  'storage.put_workers': key.integer({ default: 128, min: 1, max: 4096, doc: 'Concurrent writes.' }),
  'storage.get_deadline': key.duration({
    default: '2s',
    min: '10ms',
    max: '5m',
    doc: 'The deadline of a read until its first byte.',
    reloadable: true,
  }),
  'storage.put_wait': key.duration({
    default: '5s',
    min: '10ms',
    max: '5m',
    doc: 'The longest wait of a write for a worker.',
    reloadable: true,
  }),
  'storage.put_deadline': key.duration({
    default: '30s',
    min: '100ms',
    max: '1h',
    doc: 'The deadline from the last byte of a write to its acknowledgement.',
    reloadable: true,
  }),
  'storage.lease': key.optional(
    key.duration({
      min: '1s',
      max: '3650d',
      doc: 'How long an object that is not pinned is kept after its last put. Default: without limit.',
    }),
  ),
  'storage.compact_interval': key.duration({
    default: '24h',
    min: '1m',
    max: '24d',
    doc: 'The interval of automatic compactions, with a jitter of a tenth.',
    reloadable: true,
  }),
  'storage.compact_live_ratio': key.decimal({
    default: 0.5,
    min: 0,
    max: 1,
    doc: 'A compaction rewrites segments with a smaller ratio of needed bytes.',
  }),
  'storage.compact_pacing': key.rate({
    default: '50MiB/s',
    min: '64KiB/s',
    doc: 'The rate limit of compaction, for reads and writes.',
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
    doc: 'Answer 404 for an object that an absent directory may hold. Otherwise such reads get 503.',
    reloadable: true,
  }),
  'durability.ec': key.boolean({
    default: false,
    doc: 'Whether copies of chunks of large objects are replaced by stripes with parity, within about durability.repair_interval after the write, or when a repair is requested. Data outside of stripes, such as an object of one chunk, has one copy more than there are parity shards.',
  }),
  'durability.ec_data_shards': key.integer({ default: 6, min: 1, max: 20, doc: 'Chunks of a stripe.' }),
  'durability.ec_parity_shards': key.integer({
    default: 3,
    min: 1,
    max: 10,
    doc: 'Parity shards of a stripe: every object survives the loss of this many directories. Until its stripes are written, an object survives the loss of all but one of its copies.',
  }),
  'durability.repair_pacing': key.rate({
    default: '50MiB/s',
    min: '64KiB/s',
    doc: 'The common rate limit of repair, scrub and striping. They slow down while client requests are slow.',
    reloadable: true,
  }),
  'durability.repair_interval': key.duration({
    default: '10m',
    min: '1s',
    max: '24d',
    doc: 'The interval at which storage checks for missing copies, with a jitter of a tenth. After a failed read or a lost directory it checks at once.',
    reloadable: true,
  }),
  'durability.repair_workers': key.integer({ default: 4, min: 1, max: 64, doc: 'Concurrent repairs.' }),
  'durability.scrub_interval': key.duration({
    default: '14d',
    min: '1m',
    max: '24d',
    doc: 'The period in which every byte is read and verified, with a jitter of a tenth.',
  }),
  'storage.index_url': key.optional(
    key.text({
      doc: 'The socket of the index of this node, `unix:PATH`. Storage announces its objects there, unless `auth.reads` is set: other nodes could not read them. Default: none.',
    }),
  ),
  'storage.index_capability_file': key.optional(
    key.text({ doc: 'File, mode 0600, with the capability to announce objects. Required with storage.index_url.' }),
  ),
  'uploads.expiry': key.duration({
    default: '24h',
    min: '1s',
    max: '24d',
    doc: 'An upload expires this long after its last append.',
  }),
  'uploads.max': key.integer({
    default: 256,
    min: 1,
    max: 65_536,
    doc: 'Unfinished uploads; further ones get 429. Each takes up to 0.7 MiB of memory.',
  }),
  'auth.reads': key.boolean({ default: false, doc: 'Whether reads need the scope storage:get.' }),
  ...AUTH_KEYS,
  'amnesia.enabled': key.boolean({ default: false, doc: 'Keep everything in memory and write to no disk.' }),
  'amnesia.bytes_max': key.size({ default: '256MiB', min: '1MiB', max: '1TiB', doc: 'Memory for objects in amnesia.' }),
};

export const schema = defineConfig(KEYS, (config, report) => {
  checkIngressKeys(config, report);
  checkAuthKeys(config, report);
  checkPassportKeys(config, report);
  const { storage, amnesia, data_dirs } = config;
  if (!Number.isInteger(Math.log2(storage.chunk_size))) report('storage.chunk_size', 'a power of two');
  if (data_dirs.length === 0 && !amnesia.enabled) report('data_dirs', 'a directory, unless amnesia.enabled is set');
  const dirs = data_dirs.flatMap((item) => parseDataDir(item)?.dir ?? []);
  if (dirs.length < data_dirs.length) report('data_dirs', 'DIR[@domain=NAME][@weight=NUMBER][@draining] for each');
  if (!areApart(dirs)) report('data_dirs', 'distinct directories, none inside another');
  checkIndexKeys(config, report);
  checkDurability(config, report);
});

type Check = NonNullable<Parameters<typeof defineConfig<typeof KEYS>>[1]>;
type Given = Parameters<Check>;

function checkIndexKeys({ storage }: Given[0], report: Given[1]): void {
  const { index_url, index_capability_file } = storage;
  if (index_url === undefined) return;
  if (!index_url.startsWith('unix:/')) report('storage.index_url', 'unix:PATH, the socket of index');
  if (index_capability_file === undefined)
    report('storage.index_capability_file', 'a file with a capability, because storage.index_url is set');
}

function checkDurability({ durability, data_dirs, amnesia }: Given[0], report: Given[1]): void {
  // Draining directories hold nothing in the end.
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
