/** The service table: the services that `ron up` starts. */
import { isIPv6 } from 'node:net';
import { fileURLToPath } from 'node:url';
import { AUDIENCE_LABEL, audiencePrefix } from '@ron/auth/audience-names';
import type { ConfigSchema, KeyTable } from '@ron/config';
import { defaultPort, HOOKS_PREFIX, type Service } from '@ron/proto';
import { hasNetwork, isLoopback, readNetwork } from '../../net/network.ts';
import { knownVolumes } from './known-volumes.ts';
import { portOf, type Call, type Defaults, type Place, type SealedFileOf, type ServiceEntry } from './service-entry.ts';

/** Derives the keys with which the caller verifies capabilities: its own, or those of all audiences if `label` is the common prefix. */
function derivesKeys(label: string, more: Pick<Call, 'isRequired'> = {}): Call {
  return {
    to: 'kms',
    scopes: ['kms:audience'],
    caveats: [`label ^= ${label}`],
    config: { url: 'auth.kms_url', capability_file: 'auth.capability_file' },
    ...more,
  };
}

/** Polls for revocations: an open route. */
const POLLS_REVOCATIONS: Call = { to: 'passport', scopes: [], config: { url: 'auth.passport_url' } };

/** Appends entries to the audit log. The rate bounds a flood of entries. */
const RECORDS: Call = {
  to: 'kms',
  purpose: 'log',
  scopes: ['kms:log'],
  caveats: ['rate <= 500/s'],
  config: { url: 'auth.kms_url', capability_file: 'passport.log_capability_file' },
};

/** Announces objects. Storage works without index. */
const ANNOUNCES: Call = {
  to: 'index',
  scopes: ['index:announce'],
  config: { url: 'storage.index_url', capability_file: 'storage.index_capability_file' },
  isBackground: true,
};

/** Reads objects, and packs that are objects. */
const READS_OBJECTS: Call = {
  to: 'storage',
  scopes: ['storage:get'],
  config: { url: 'edge.storage_url', capability_file: 'edge.storage_capability_file' },
};

/** Signs the checkpoints of the fill log with a key of its own tenant. */
const SIGNS_FILLS: Call = {
  to: 'kms',
  purpose: 'fills',
  scopes: ['kms:create', 'kms:sign'],
  caveats: ['tenant = edge'],
  config: { url: 'edge.kms_url', capability_file: 'edge.kms_capability_file' },
};

/** Interop delivers webhooks to topics below `hooks.`. */
const DELIVERS: Call = {
  to: 'mailbox',
  scopes: ['mailbox:send'],
  caveats: [`name ^= ${HOOKS_PREFIX}`],
  config: { url: 'interop.mailbox_url', capability_file: 'interop.mailbox_capability_file' },
};

/** Wraps the secrets of providers and signs receipts, with keys of its own tenant. */
const WRAPS_AND_SIGNS: Call = {
  to: 'kms',
  purpose: 'hooks',
  scopes: ['kms:create', 'kms:wrap', 'kms:unwrap', 'kms:sign', 'kms:read'],
  caveats: ['tenant = interop'],
  config: { url: 'auth.kms_url', capability_file: 'interop.kms_capability_file' },
};

/** Exchanges the capabilities of clients for those of storage: interop has none of its own. */
const EXCHANGES: Call = {
  to: 'passport',
  purpose: 'exchange',
  scopes: ['passport:exchange'],
  config: { url: 'auth.passport_url', capability_file: 'interop.passport_capability_file' },
};

/** With the capabilities that passport gives in exchange. */
const BRIDGES_OBJECTS: Call = { to: 'storage', scopes: [], config: { url: 'interop.storage_url' } };

/** The calls of every service that checks capabilities and neither derives keys nor issues. */
const authCalls = (name: Service): readonly Call[] => [derivesKeys(audiencePrefix(name)), POLLS_REVOCATIONS];

/** Defaults of every service: the bind address, and the files for its keys. */
function common(name: Service, isKeyService: boolean): Defaults {
  return ({ home, base_port, amnesia, key_service }) => {
    const own = home.of(name);
    const bind = { 'server.bind': `127.0.0.1:${base_port === 0 ? 0 : defaultPort(name, base_port)}` };
    if (key_service === undefined) return { ...bind, 'auth.key_file': own.keys };
    return {
      ...bind,
      ...(isKeyService && { 'auth.owner_file': own.owner }),
      ...(!amnesia && { 'auth.cache_file': own.cache }),
    };
  };
}

type Row = Pick<
  ServiceEntry,
  | 'calls'
  | 'derives_keys'
  | 'restarts_on_reload'
  | 'is_optional'
  | 'holds_secrets'
  | 'knows_revocations'
  | 'sealed_files'
  | 'threads'
>;

const BLOCKING_WORKER = new URL('tasks/blocking-worker.ts', import.meta.resolve('@ron/kernel'));

/** The modules of the threads of a service, relative to the folder of an entry. */
const threadsOf = (entry: string, ...modules: readonly string[]): string[] =>
  [BLOCKING_WORKER, ...modules.map((module) => new URL(module, entry))].map((url) => fileURLToPath(url));

/** The thread that writes to the store. */
const STORE_THREAD = threadsOf(import.meta.resolve('@ron/custody/store'), 'lmdb-thread.ts');
/** The threads of the database. */
const DATABASE_THREAD = threadsOf(import.meta.resolve('@ron/index'), 'store/thread/db-thread.ts');
/** The threads that hash, verify and read packs. */
const PACK_THREADS = threadsOf(
  import.meta.resolve('@ron/edge'),
  'packs/pmtiles/thread/pmtiles-thread.ts',
  'packs/mbtiles/thread/mbtiles-thread.ts',
);

const CACHE: SealedFileOf = { key: 'auth.cache_file', purpose: 'capability-cache' };

/** One file for each provider of webhooks, and their catalog. */
const PROVIDER_FILES: readonly SealedFileOf[] = [
  { key: 'data_dir', name: 'providers/catalog', purpose: 'interop-catalog' },
  { key: 'data_dir', name: 'providers/*.sealed', purpose: 'interop-provider/*' },
];

function service(name: Service, entry: string, row: Row, own: Defaults): ServiceEntry {
  const folder = new URL('.', entry);
  const shared = common(name, row.derives_keys === true);
  return {
    ...row,
    name,
    main: fileURLToPath(new URL('main.ts', folder)),
    defaults: (place) => ({ ...shared(place), ...own(place) }),
    schema: async () =>
      ((await import(new URL('config.ts', folder).href)) as { schema: ConfigSchema<KeyTable> }).schema,
  };
}

const AMNESIA: Readonly<Record<string, string>> = { 'amnesia.enabled': 'true' };

const withDataDir =
  (name: Service): Defaults =>
  ({ home, amnesia }) =>
    amnesia ? AMNESIA : { data_dir: home.of(name).data };

/** The known directories of storage; at the first start, one in the directory of the node. */
function storageDefaults(place: Place): Readonly<Record<string, string>> {
  const { home, amnesia, degraded } = place;
  const opened = openedReads(place);
  if (amnesia) return { ...AMNESIA, ...opened };
  const { data, volumes } = home.of('storage');
  const known = knownVolumes(volumes);
  const data_dirs = known.length === 0 ? data : JSON.stringify(known.map(({ item }) => item));
  return { ...opened, data_dirs, volumes_file: volumes, ...(degraded === true && { 'durability.degraded': 'true' }) };
}

/** The port after those of the services is for peers. */
const PEER_PORT_OFFSET = 8;

function indexDefaults(place: Place): Readonly<Record<string, string>> {
  const { home, base_port } = place;
  const { host, bootstrap } = readNetwork(home);
  const listen_port = base_port === 0 ? 0 : base_port + PEER_PORT_OFFSET;
  return {
    ...withDataDir('index')(place),
    'dht.listen': `/ip${isIPv6(host) ? 6 : 4}/${host}/tcp/${listen_port}`,
    'index.storage_url': `http://${bindAddress(host, base_port === 0 ? portOf('storage') : defaultPort('storage', base_port))}`,
    ...(hasNetwork(home) && {
      'dht.mode': 'join',
      'dht.network_key_file': home.net.key,
      ...(bootstrap.length > 0 && { 'dht.bootstrap': bootstrap.join(',') }),
    }),
  };
}

const bindAddress = (host: string, port: number | string): string => `${isIPv6(host) ? `[${host}]` : host}:${port}`;

/** Other machines read objects of a node that they can reach. */
function openedReads({ home, base_port }: Place): Readonly<Record<string, string>> {
  const { host } = readNetwork(home);
  if (isLoopback(host)) return {};
  const bind = bindAddress(host, base_port === 0 ? 0 : defaultPort('storage', base_port));
  return { 'server.bind': bind, 'server.open_beyond_loopback': 'true' };
}

export const SERVICE_TABLE: readonly ServiceEntry[] = [
  service(
    'storage',
    import.meta.resolve('@ron/storage'),
    { calls: [...authCalls('storage'), ANNOUNCES], sealed_files: [CACHE] },
    storageDefaults,
  ),
  service(
    'index',
    import.meta.resolve('@ron/index'),
    {
      calls: authCalls('index'),
      sealed_files: [CACHE],
      threads: DATABASE_THREAD,
      restarts_on_reload: true,
      is_optional: true,
    },
    indexDefaults,
  ),
  service(
    'edge',
    import.meta.resolve('@ron/edge'),
    {
      calls: [...authCalls('edge'), READS_OBJECTS, SIGNS_FILLS],
      sealed_files: [CACHE],
      threads: PACK_THREADS,
      is_optional: true,
    },
    withDataDir('edge'),
  ),
  service(
    'interop',
    import.meta.resolve('@ron/interop'),
    {
      calls: [...authCalls('interop'), DELIVERS, WRAPS_AND_SIGNS, EXCHANGES, BRIDGES_OBJECTS],
      sealed_files: [CACHE, ...PROVIDER_FILES],
      is_optional: true,
    },
    withDataDir('interop'),
  ),
  service(
    'kms',
    import.meta.resolve('@ron/kms'),
    // Passport calls kms for its keys. While passport is down, kms uses the revocations that it knows.
    {
      calls: [{ ...POLLS_REVOCATIONS, isBackground: true }],
      derives_keys: true,
      holds_secrets: true,
      threads: STORE_THREAD,
    },
    withDataDir('kms'),
  ),
  service(
    'mailbox',
    import.meta.resolve('@ron/mailbox'),
    { calls: authCalls('mailbox'), sealed_files: [CACHE], is_optional: true },
    withDataDir('mailbox'),
  ),
  service(
    'passport',
    import.meta.resolve('@ron/passport'),
    // Passport issues capabilities for every audience, and records each issue and revocation.
    {
      calls: [derivesKeys(AUDIENCE_LABEL, { isRequired: true }), RECORDS],
      knows_revocations: true,
      sealed_files: [CACHE, { key: 'data_dir', name: 'revocations', purpose: 'revocations' }],
    },
    withDataDir('passport'),
  ),
];
