/**
 * The services that `ron up` starts, in one place: a new one is a line in the table.
 */
import { fileURLToPath } from 'node:url';
import type { ConfigSchema, KeyTable } from '@ron/kernel';
import { defaultPort, type Service } from '@ron/proto';
import type { Home } from '../home.ts';
import { knownVolumes } from './known-volumes.ts';

/** What a node's place on this machine says about the configuration of its services. */
export interface Place {
  readonly home: Home;
  /** 0 lets each service pick a free port. */
  readonly base_port: number;
  readonly amnesia: boolean;
  /** The operator accepts that known volumes are missing. */
  readonly degraded?: boolean;
  /** What runs there. */
  readonly services: readonly Service[];
}

export interface ServiceEntry {
  readonly name: Service;
  /** Its process entry. */
  readonly main: string;
  /** Those of round 1 are drained first: whoever calls others goes before those whom it calls. */
  readonly drain_round: number;
  /** Keys of capabilities come from it: those who start with it wait for it. Default false. */
  readonly derives_keys?: boolean;
  /** Services without which it cannot be. Default none. */
  readonly needs?: readonly Service[];
  /** Keys that follow from the place. What the operator sets is stronger. */
  readonly defaults: (place: Place) => Readonly<Record<string, string>>;
  readonly schema: () => Promise<ConfigSchema<KeyTable>>;
}

type Defaults = (place: Place) => Readonly<Record<string, string>>;

/** Every service: where it listens, where it has the keys from with which it checks capabilities, who tells what is revoked. */
function common(name: Service): Defaults {
  return (place) => {
    const { home, base_port, services } = place;
    return {
      'server.bind': `127.0.0.1:${base_port === 0 ? 0 : defaultPort(name, base_port)}`,
      ...keysOf(name, place),
      ...(name !== 'passport' && services.includes('passport')
        ? { 'auth.passport_url': `file:${home.of('passport').url}` }
        : {}),
    };
  };
}

function keysOf(name: Service, { home, amnesia, services }: Place): Readonly<Record<string, string>> {
  const own = home.of(name);
  if (!services.includes('kms')) return { 'auth.key_file': own.keys };
  const cache = amnesia ? {} : { 'auth.cache_file': own.cache };
  if (name === 'kms') return { 'auth.owner_file': own.owner, ...cache };
  const capability = { 'auth.kms_url': `file:${home.of('kms').url}`, 'auth.capability_file': own.kms_capability };
  return { ...capability, ...cache };
}

function service(
  name: Service,
  drain_round: number,
  entry: string,
  own: Defaults,
  more: Pick<ServiceEntry, 'derives_keys' | 'needs'> = {},
): ServiceEntry {
  const folder = new URL('.', entry);
  return {
    ...more,
    name,
    main: fileURLToPath(new URL('main.ts', folder)),
    drain_round,
    defaults: (place) => ({ ...common(name)(place), ...own(place) }),
    schema: async () =>
      ((await import(new URL('config.ts', folder).href)) as { schema: ConfigSchema<KeyTable> }).schema,
  };
}

/** The directories that storage had before, unless the operator names others; at the first start one below the node's own. */
function storageDefaults({ home, degraded }: Place): Record<string, string> {
  const { data, volumes } = home.of('storage');
  const known = knownVolumes(volumes);
  const data_dirs = known.length === 0 ? data : JSON.stringify(known.map(({ item }) => item));
  return { data_dirs, volumes_file: volumes, ...(degraded === true && { 'durability.degraded': 'true' }) };
}

/** Rounds: 1 edge, interop; 2 index, storage, mailbox; 3 passport; 4 kms. */
export const SERVICE_TABLE: readonly ServiceEntry[] = [
  service('storage', 2, import.meta.resolve('@ron/storage'), (place): Record<string, string> =>
    place.amnesia ? { 'amnesia.enabled': 'true' } : storageDefaults(place),
  ),
  service(
    'kms',
    4,
    import.meta.resolve('@ron/kms'),
    ({ home, amnesia }): Record<string, string> =>
      amnesia ? { 'amnesia.enabled': 'true' } : { data_dir: home.of('kms').data },
    { derives_keys: true },
  ),
  service(
    'passport',
    3,
    import.meta.resolve('@ron/passport'),
    ({ home, amnesia }): Record<string, string> =>
      amnesia ? { 'amnesia.enabled': 'true' } : { data_dir: home.of('passport').data },
    { needs: ['kms'] },
  ),
];
