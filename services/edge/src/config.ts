/** The configuration of edge: the keys of the listener, of the process and its own. */
import { AUTH_KEYS, checkAuthKeys, checkPassportKeys } from '@ron/auth/service';
import { isPrivate } from '@ron/client/node';
import { defineConfig, key, type ConfigOf } from '@ron/config';
import { checkIngressKeys, INGRESS_SEED_KEYS } from '@ron/ingress';
import { PROCESS_KEYS } from '@ron/service';
import { checkFillKeys } from './fill/fill-keys.ts';

const EDGE_KEYS = {
  data_dir: key.optional(
    key.text({
      doc: 'The directory for packs, cached assets and the fill log. Required unless amnesia is enabled, which ignores it.',
    }),
  ),
  'edge.mode': key.oneOf(['offline', 'live'], {
    default: 'offline',
    doc: 'Whether assets may be fetched from the origins in fill.allow. `offline` opens no socket except to configured ron services, and serves stale assets.',
    reloadable: true,
  }),
  'edge.workers': key.integer({ default: 32, min: 1, max: 1024, doc: 'Concurrent fills.' }),
  'edge.work_capacity': key.integer({ default: 512, min: 1, max: 65_536, doc: 'Fills that wait for a worker.' }),
  'edge.reads_max': key.integer({
    default: 64,
    min: 1,
    max: 4096,
    doc: 'Concurrent reads of packs and cached assets from disk; further ones get 429.',
  }),
  'edge.fast_path': key.boolean({
    default: true,
    doc: 'Answer assets in memory before routing. The answers are the same without.',
  }),
  'edge.public_url': key.optional(
    key.text({
      pattern: /^https?:\/\/[^\s/?#@]+(?:\/[^\s?#]*)?$/,
      expects: 'an http or https URL without a query',
      doc: 'The URL under which clients reach this service, for links in TileJSON. Default: the Host of the request.',
    }),
  ),
  'edge.storage_url': key.optional(
    key.text({
      doc: 'The storage of this node, `unix:PATH` or an http URL, for `o/{address}` and packs. Default: none.',
    }),
  ),
  'edge.storage_capability_file': key.optional(
    key.text({ doc: 'File, mode 0600, with the capability to read objects. Default: reads without one.' }),
  ),
  'edge.kms_url': key.optional(
    key.text({
      doc: 'The kms of this node: `unix:PATH`, or an https URL with auth.kms_pin. It signs the checkpoints of the fill log. Default: a key in data_dir.',
    }),
  ),
  'edge.kms_capability_file': key.optional(
    key.text({ doc: 'File, mode 0600, with the capability to create and use keys. Required with edge.kms_url.' }),
  ),
  'packs.dir': key.optional(key.text({ doc: 'The directory of the packs. Default: `packs` in data_dir.' })),
  'packs.bytes_max': key.size({ default: '64GiB', min: '1KiB', max: '16TiB', doc: 'The largest uploaded pack.' }),
  'packs.open_max': key.integer({
    default: 1024,
    min: 1,
    max: 4096,
    doc: 'Open packs, including replaced ones that requests still read. The directory may have four times as many entries.',
  }),
};

const FILL_KEYS = {
  'fill.allow': key.list({
    default: [],
    items_max: 256,
    expects: 'origins such as https://tiles.example.org or https://tiles.example.org:8443',
    doc: 'Exact origins from which assets may be fetched with edge.mode = "live".',
    reloadable: true,
  }),
  'fill.networks': key.list({
    default: [],
    items_max: 64,
    expects: 'CIDR blocks such as 10.0.0.0/8',
    doc: 'Networks with non-public addresses that an origin may have.',
  }),
  'fill.ca_file': key.optional(
    key.text({ doc: 'PEM file with a certificate authority that is trusted besides the public ones.' }),
  ),
  'fill.types': key.list({
    default: [
      'image/*',
      'font/*',
      'text/css',
      'application/json',
      'application/geo+json',
      'application/vnd.mapbox-vector-tile',
      'application/x-protobuf',
    ],
    items_max: 64,
    expects: 'media types such as image/png or image/*',
    doc: 'Media types that are stored and served.',
    reloadable: true,
  }),
  'fill.etag': key.oneOf(['strong', 'any'], {
    default: 'strong',
    doc: 'The ETag that an origin must send. `any` also accepts none and weak ones.',
    reloadable: true,
  }),
  'fill.query': key.list({
    default: [],
    items_max: 32,
    expects: 'names of query parameters',
    doc: 'Query parameters that are sent to origins and are part of the key. A request with another one gets 400.',
    reloadable: true,
  }),
  'fill.object_bytes_max': key.size({
    default: '10MiB',
    min: '1KiB',
    max: '1GiB',
    doc: 'The largest asset from an origin or from storage. One with `no-store` or `private` stays in memory and has at most 1 MiB.',
    reloadable: true,
  }),
  'fill.log_bytes_max': key.size({
    default: '256MiB',
    min: '1MiB',
    max: '1TiB',
    doc: 'The size of the fill log above which at least its older half is removed. 256 MiB hold about 500 000 fills.',
  }),
  'fill.waiters_max': key.integer({ default: 1024, min: 1, max: 65_536, doc: 'Requests that wait for fills.' }),
  'fill.stale_while_revalidate': key.duration({
    default: '0s',
    min: '0s',
    max: '24d',
    doc: 'How long a stale asset is served while it is revalidated, unless the origin states must-revalidate.',
    reloadable: true,
  }),
  'fill.stale_if_error': key.duration({
    default: '0s',
    min: '0s',
    max: '24d',
    doc: 'How long a stale asset is served while its origin fails, unless the origin states must-revalidate.',
    reloadable: true,
  }),
  'fill.negative_ttl': key.duration({
    default: '10s',
    min: '0s',
    max: '1h',
    doc: 'How long a 404 or 410 of an origin is kept, with a jitter of a tenth.',
    reloadable: true,
  }),
  'retry.live_fill.base_ms': key.integer({
    default: 50,
    min: 1,
    max: 5000,
    doc: 'The first pause between two tries of a fill, and the largest jitter.',
    reloadable: true,
  }),
  'retry.live_fill.max_ms': key.integer({
    default: 800,
    min: 1,
    max: 5000,
    doc: 'The longest pause, without jitter.',
    reloadable: true,
  }),
  'retry.live_fill.max_retries': key.integer({
    default: 2,
    min: 0,
    max: 10,
    doc: 'Further tries after a timeout, 503 or 504.',
    reloadable: true,
  }),
  'retry.live_fill.jitter': key.boolean({
    default: true,
    doc: 'Whether up to base_ms is added to each pause by chance.',
    reloadable: true,
  }),
};

const CACHE_KEYS = {
  'cache.ram_bytes': key.size({ default: '64MiB', min: '1MiB', max: '1TiB', doc: 'Memory for assets.' }),
  'cache.disk_bytes': key.size({ default: '1GiB', min: '1MiB', max: '16TiB', doc: 'Disk space for fetched assets.' }),
  'amnesia.enabled': key.boolean({ default: false, doc: 'Keep all state in memory and write nothing to disk.' }),
  'amnesia.bytes_max': key.size({
    default: '256MiB',
    min: '1MiB',
    max: '1TiB',
    doc: 'Memory for fetched assets in amnesia.',
  }),
  'amnesia.fill': key.oneOf(['ram', 'refuse'], {
    default: 'ram',
    doc: 'Whether assets are fetched in amnesia: kept in memory, or refused with 403.',
  }),
  'cors.origins': key.list({
    default: [],
    items_max: 256,
    expects: 'origins such as https://map.example.org, or *',
    doc: 'Origins whose pages may read assets. Default: none.',
    reloadable: true,
  }),
  'auth.reads': key.boolean({ default: false, doc: 'Whether reads of assets need the scope edge:get.' }),
};

const KEYS = {
  ...PROCESS_KEYS,
  ...INGRESS_SEED_KEYS,
  // Requests for missing assets wait for fills, within `fill.waiters_max`.
  'server.parked_max': key.integer({
    default: 4096,
    min: 1,
    max: 1_000_000,
    doc: 'Parked requests that wait for an event; more get 429.',
  }),
  ...EDGE_KEYS,
  ...FILL_KEYS,
  ...CACHE_KEYS,
  ...AUTH_KEYS,
};

export const schema = defineConfig(KEYS, (config, report) => {
  checkIngressKeys(config, report);
  checkAuthKeys(config, report);
  checkPassportKeys(config, report);
  checkFillKeys(config, report);
  const { edge, amnesia } = config;
  if (config.data_dir === undefined && !amnesia.enabled)
    report('data_dir', 'a directory, unless amnesia.enabled is set');
  if (edge.kms_url !== undefined && edge.kms_capability_file === undefined)
    report('edge.kms_capability_file', 'a file with a capability, because edge.kms_url is set');
  if (edge.kms_url !== undefined && !isPrivate(edge.kms_url, config.auth.kms_pin))
    report('edge.kms_url', 'unix:PATH, or https:// with auth.kms_pin: another user could receive the capability');
});

export type EdgeConfig = ConfigOf<typeof schema>;
