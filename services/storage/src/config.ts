/** The configuration of storage: the listener's keys, the process's keys and its own, named as operators know them. */
import { defineConfig, key, PROCESS_KEYS } from '@ron/kernel';
import type { ConfigOf } from '@ron/kernel';
import { AUTH_KEYS, checkAuthKeys } from '@ron/auth/service';
import { checkIngressKeys, INGRESS_KEYS } from '@ron/ingress';

const KEYS = {
  ...PROCESS_KEYS,
  ...INGRESS_KEYS,
  data_dirs: key.list({
    default: [],
    items_max: 1,
    expects: 'directory',
    doc: 'Where objects are kept. Needed unless amnesia is on, which ignores it.',
  }),
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
    doc: 'Memory for verified bytes; prepared answers of small objects take as much again.',
  }),
  'storage.fast_path': key.boolean({
    default: true,
    doc: 'Answer small objects that are in memory before routing. The answers are the same without.',
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
});

export type StorageConfig = ConfigOf<typeof schema>;
