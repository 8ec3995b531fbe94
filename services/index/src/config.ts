/** The configuration of index: the keys of the listener, of the process and its own. */
import { AUTH_KEYS, checkAuthKeys, checkPassportKeys } from '@ron/auth/service';
import { defineConfig, key, type ConfigOf } from '@ron/config';
import { checkIngressKeys, INGRESS_RATELIMIT_KEYS } from '@ron/ingress';
import { parsePeerAddress } from '@ron/proto';
import { PROCESS_KEYS } from '@ron/service';

/** `/ip4/127.0.0.1/tcp/7108`, or with `/p2p/<peer id>`. */
const LISTEN = /^\/(?:ip4|ip6)\/[0-9a-fA-F.:]{2,45}\/tcp\/\d{1,5}$/;
const PEER = /^\/(?:ip4|ip6|dns4|dns6|dns)\/[0-9A-Za-z.:-]{1,253}\/tcp\/\d{1,5}\/p2p\/[1-9A-HJ-NP-Za-km-z]{40,64}$/;
const PEER_ID = /^[1-9A-HJ-NP-Za-km-z]{40,64}$/;
const TARGET = /^(?:b3:[0-9a-f]{64}|name:[a-z0-9._/-]{1,255}(?:@[0-9a-f]{64})?)$/;

const DHT_KEYS = {
  'dht.mode': key.oneOf(['standalone', 'join'], {
    default: 'standalone',
    doc: 'Whether this node joins a DHT. `standalone` opens no further port and loads no DHT code.',
  }),
  'dht.alpha': key.integer({
    default: 3,
    min: 1,
    max: 16,
    doc: 'Requests of a lookup in flight at a time.',
    reloadable: true,
  }),
  'dht.beta': key.integer({
    default: 2,
    min: 0,
    max: 16,
    doc: 'Further requests, to other peers, when a lookup makes no progress for dht.hedge_ms.',
    reloadable: true,
  }),
  'dht.hedge_ms': key.integer({
    default: 150,
    min: 1,
    max: 60_000,
    doc: 'Time without a provider, record or closer peer until a lookup sends dht.beta further requests.',
    reloadable: true,
  }),
  'dht.deadline_ms': key.integer({
    default: 1200,
    min: 100,
    max: 60_000,
    doc: 'Budget of a lookup from request to answer. Callers may shorten it.',
    reloadable: true,
  }),
  'dht.bootstrap': key.list({
    default: [],
    pattern: PEER,
    expects: 'addresses such as /ip4/192.0.2.1/tcp/7108/p2p/12D3KooW...',
    doc: 'Peers to join by.',
  }),
  'dht.network_key_file': key.optional(
    key.text({ doc: 'File, mode 0600, with the key that all members of the network share. Required with `join`.' }),
  ),
  'dht.allow': key.list({
    default: [],
    items_max: 4096,
    pattern: PEER_ID,
    expects: 'peer ids',
    doc: 'Peers that may connect. Default: every holder of the network key.',
  }),
  'dht.listen': key.text({
    default: '/ip4/127.0.0.1/tcp/0',
    pattern: LISTEN,
    expects: 'an address such as /ip4/127.0.0.1/tcp/7108',
    length_max: 128,
    doc: 'Address for peers. `ron up` uses the base port plus 8.',
  }),
};

const BREAKER_KEYS = {
  'breaker.error_window_s': key.integer({
    default: 10,
    min: 1,
    max: 3600,
    doc: 'Seconds over which the errors of a peer are counted.',
    reloadable: true,
  }),
  'breaker.trip_threshold': key.decimal({
    default: 0.5,
    min: 0,
    max: 1,
    doc: 'Share of failed requests above which the breaker of a peer opens.',
    reloadable: true,
  }),
  'breaker.cooldown_s': key.integer({
    default: 5,
    min: 1,
    max: 3600,
    doc: 'Seconds for which an open breaker refuses all requests.',
    reloadable: true,
  }),
  'breaker.half_open_probes': key.integer({
    default: 2,
    min: 1,
    max: 64,
    doc: 'Requests that must succeed before a half-open breaker closes.',
    reloadable: true,
  }),
};

const QUOTA_KEYS = {
  'quotas.providers_max': key.integer({
    default: 10_000_000,
    min: 1,
    max: 1_000_000_000,
    doc: 'Own objects, and as many provider records of other peers.',
    reloadable: true,
  }),
  'quotas.providers_per_subject': key.integer({
    default: 1_000_000,
    min: 1,
    max: 1_000_000_000,
    doc: 'Provider records of one peer. Of the name records of `quotas.names_seen` it may have the same share: a tenth by default.',
    reloadable: true,
  }),
  'quotas.names_per_key': key.integer({
    default: 100_000,
    min: 1,
    max: 100_000_000,
    doc: 'Names of one key that this node publishes.',
    reloadable: true,
  }),
  'quotas.names_seen': key.integer({
    default: 1_000_000,
    min: 1,
    max: 100_000_000,
    doc: 'Names of other keys whose highest seq is remembered; the least recently used one is forgotten. And as many name records that peers store at this node.',
    reloadable: true,
  }),
  'quotas.publish_per_min': key.integer({
    default: 600,
    min: 1,
    max: 1_000_000,
    doc: 'Changes of names, trust and pins, and admin calls, that one subject may make per minute.',
    reloadable: true,
  }),
};

const OWN_KEYS = {
  data_dir: key.optional(
    key.text({
      doc: 'Directory of the name log and the database. Required unless amnesia is enabled, which ignores it.',
    }),
  ),
  'index.resolvers': key.integer({ default: 32, min: 1, max: 1024, doc: 'Concurrent lookups.' }),
  'index.waiters_max': key.integer({
    default: 1024,
    min: 1,
    max: 65_536,
    doc: 'Requests of one route that wait for a lookup; more get 429.',
    reloadable: true,
  }),
  'index.storage_url': key.optional(
    key.text({
      pattern: /^https?:\/\/\S+$/,
      expects: 'a URL such as http://192.0.2.1:7101',
      length_max: 512,
      doc: 'Base URL of the storage of this node, as other nodes reach it. Default: own objects have no provider.',
    }),
  ),
  'cache.entries_max': key.integer({ default: 100_000, min: 1, max: 10_000_000, doc: 'Cached answers.' }),
  'cache.ttl_s': key.integer({
    default: 10,
    min: 1,
    max: 3600,
    doc: 'Seconds for which an answer is fresh. A name record may shorten it.',
    reloadable: true,
  }),
  'cache.warmup_keys': key.list({
    default: [],
    items_max: 1024,
    pattern: TARGET,
    expects: 'keys such as b3:<hex> or name:<label>',
    doc: 'Keys that are resolved after the start.',
  }),
  'amnesia.enabled': key.boolean({ default: false, doc: 'Keep all state in memory and write nothing to disk.' }),
  'amnesia.purge_interval_ms': key.integer({
    default: 60_000,
    min: 100,
    max: 86_400_000,
    doc: 'Interval at which expired state is purged in amnesia mode.',
    reloadable: true,
  }),
};

const KEYS = {
  ...PROCESS_KEYS,
  ...INGRESS_RATELIMIT_KEYS,
  // Requests of three routes wait for lookups, within `index.waiters_max`.
  'server.parked_max': key.integer({
    default: 4096,
    min: 1,
    max: 1_000_000,
    doc: 'Parked requests that wait for an event; more get 429.',
  }),
  ...OWN_KEYS,
  ...DHT_KEYS,
  ...BREAKER_KEYS,
  ...QUOTA_KEYS,
  ...AUTH_KEYS,
};

export const schema = defineConfig(KEYS, (config, report) => {
  checkIngressKeys(config, report);
  checkAuthKeys(config, report);
  checkPassportKeys(config, report);
  const { amnesia, dht, quotas } = config;
  if (config.data_dir === undefined && !amnesia.enabled)
    report('data_dir', 'a directory, unless amnesia.enabled is set');
  if (dht.mode === 'join' && dht.network_key_file === undefined)
    report('dht.network_key_file', 'a file with the key of the network, because dht.mode is join');
  if (dht.hedge_ms >= dht.deadline_ms) report('dht.hedge_ms', 'less than dht.deadline_ms');
  if (quotas.providers_per_subject > quotas.providers_max)
    report('quotas.providers_per_subject', 'at most quotas.providers_max');
  if (dht.bootstrap.some((addr) => parsePeerAddress(addr) === undefined))
    report('dht.bootstrap', 'valid IP addresses, and ports from 1 to 65535');
  if (Number(dht.listen.split('/').at(-1)) > 65_535) report('dht.listen', 'a port up to 65535');
});

export type IndexConfig = ConfigOf<typeof schema>;
