/**
 * The services that `ron up` starts, in one place: a new one is a line in the table.
 */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ConfigSchema, KeyTable } from '@ron/kernel';
import { defaultPort, type Service } from '@ron/proto';
import type { Home } from '../home.ts';

/** What a node's place on this machine says about the configuration of its services. */
export interface Place {
  readonly home: Home;
  /** 0 lets each service pick a free port. */
  readonly base_port: number;
  readonly amnesia: boolean;
}

export interface ServiceEntry {
  readonly name: Service;
  /** Its process entry. */
  readonly main: string;
  /** Those of round 1 are drained first: whoever calls others goes before those whom it calls. */
  readonly drain_round: number;
  /** Keys that follow from the place. What the operator sets is stronger. */
  readonly defaults: (place: Place) => Readonly<Record<string, string>>;
  readonly schema: () => Promise<ConfigSchema<KeyTable>>;
}

type Defaults = (place: Place) => Readonly<Record<string, string>>;

/** Every service: where it listens, and the keys with which it checks capabilities. */
function common(name: Service): Defaults {
  return ({ home, base_port }) => ({
    'server.bind': `127.0.0.1:${base_port === 0 ? 0 : defaultPort(name, base_port)}`,
    'auth.key_file': home.of(name).keys,
  });
}

function service(name: Service, drain_round: number, entry: string, own: Defaults): ServiceEntry {
  const folder = new URL('.', entry);
  return {
    name,
    main: fileURLToPath(new URL('main.ts', folder)),
    drain_round,
    defaults: (place) => ({ ...common(name)(place), ...own(place) }),
    schema: async () =>
      ((await import(new URL('config.ts', folder).href)) as { schema: ConfigSchema<KeyTable> }).schema,
  };
}

/** Rounds: 1 edge, interop; 2 index, storage, mailbox; 3 passport; 4 kms. */
export const SERVICE_TABLE: readonly ServiceEntry[] = [
  service('storage', 2, import.meta.resolve('@ron/storage'), ({ home, amnesia }): Record<string, string> =>
    amnesia ? { 'amnesia.enabled': 'true' } : { data_dirs: join(home.of('storage').data) },
  ),
  service('kms', 4, import.meta.resolve('@ron/kms'), ({ home, amnesia }): Record<string, string> =>
    amnesia ? { 'amnesia.enabled': 'true' } : { data_dir: home.of('kms').data },
  ),
];
