/**
 * The capability files of a node and the capability that each must hold.
 *
 * Contract: `ron up` renews these files and `ron doctor` checks them, both by this table.
 */
import { OWNER_SUBJECT, ROOT_SUBJECT, serviceSubject, type MintInit } from '@ron/auth';
import { grantableScopesOf, scopesOf, type Service } from '@ron/proto';
import type { Home } from '../../home.ts';
import type { ServiceEntry } from './service-entry.ts';

const HOUR_MS = 3600 * 1000;
/** The lifetime of the tokens in `root.cap`. */
export const ROOT_TTL_MS = 90 * 24 * HOUR_MS;
/** The lifetime of the capability of a call between services; a copy of the file is of no use after it. */
export const CALL_TTL_MS = HOUR_MS;

/** A capability that the node mints for itself. */
export type Wanted = Required<Pick<MintInit, 'audience' | 'scopes' | 'subject' | 'ttl_ms'>> & {
  readonly caveats: readonly string[];
};

export interface CapabilityFile {
  /** Names the holder and the audience. */
  readonly what: string;
  readonly path: string;
  readonly wanted: Wanted;
}

/** The files of all calls between the given services that need a capability, in the order of the table. */
export function callFiles(home: Home, services: readonly Pick<ServiceEntry, 'name' | 'calls'>[]): CapabilityFile[] {
  const names = services.map(({ name }) => name);
  return services.flatMap(({ name, calls }) =>
    calls
      .filter(({ to, scopes }) => scopes.length > 0 && names.includes(to))
      .map(({ to, purpose, scopes, caveats = [] }) => ({
        what: `capability of ${name} for ${to}`,
        path: home.of(name).capabilityFor(to, purpose),
        wanted: { audience: to, scopes, subject: serviceSubject(name), caveats, ttl_ms: CALL_TTL_MS },
      })),
  );
}

/** The file that the key service writes for its owner. */
export function ownerFile(home: Home, key_service: Service): CapabilityFile {
  return {
    what: `capability of the owner of ${key_service}`,
    path: home.of(key_service).owner,
    wanted: {
      audience: key_service,
      scopes: scopesOf(key_service),
      subject: OWNER_SUBJECT,
      caveats: [],
      ttl_ms: ROOT_TTL_MS,
    },
  };
}

/** The token for a service in `root.cap`. */
export function rootWanted(service: Service): Wanted {
  return {
    audience: service,
    scopes: grantableScopesOf(service),
    subject: ROOT_SUBJECT,
    caveats: [],
    ttl_ms: ROOT_TTL_MS,
  };
}
