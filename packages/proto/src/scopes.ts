/**
 * Every scope that a route can require and a capability can carry.
 *
 * Contract: the list is closed. A scope is `<service>:<verb>`; the part before the colon is the service that checks it.
 * There are no wildcards, so a capability states everything that it allows.
 */
import { isService, SERVICES } from './services.ts';
import type { Service } from './services.ts';

/** Each scope with a description of its permission. */
export const SCOPES = {
  'storage:get': 'read objects, if reads need a capability',
  'storage:put': 'store objects, by one request or by resumable upload',
  'storage:pin': 'pin and unpin objects',
  'storage:admin': 'manage volumes; start scrub, repair and compaction',

  'index:name': 'publish names',
  'index:announce': 'announce the objects of a node',
  'index:pin': 'pin and unpin index entries',
  'index:admin': 'start a reindex',

  'edge:get': 'read assets, if reads need a capability',
  'edge:admin': 'purge the cache and reload packs',

  'interop:put': 'store an object through the bridge',
  'interop:get': 'read objects and receipts through the bridge, if reads need a capability',
  'interop:admin': 'manage providers, brownout and dead letters',

  'kms:create': 'create keys and import public keys',
  'kms:rotate': 'rotate keys',
  'kms:delete': 'disable, enable, delete and restore keys and versions; change min_version',
  'kms:read': 'list public keys and read the audit log',
  'kms:sign': 'sign',
  'kms:verify': 'verify signatures',
  'kms:wrap': 'wrap keys and make data keys',
  'kms:unwrap': 'unwrap keys',
  'kms:derive': 'derive labelled secrets',
  'kms:audience': 'derive the keys that verify capabilities; rotate and retire their root',
  'kms:log': 'append entries of another service to the audit log',
  'kms:audit': 'accept a damaged audit log; prune old entries',

  'mailbox:send': 'send messages',
  'mailbox:receive': 'receive, acknowledge, return and extend messages',
  'mailbox:read': 'read statistics and list dead letters',
  'mailbox:admin': 'set limits of topics, replay and delete dead letters, read messages without a lease',

  'passport:issue': 'issue capabilities',
  'passport:verify': 'verify capabilities',
  'passport:revoke': 'revoke capabilities by subject or id',
  'passport:exchange':
    'exchange the capability of a client of interop for one of storage; only a node mints it, for interop',
} as const satisfies Record<`${Service}:${string}`, string>;

export type Scope = keyof typeof SCOPES;

/** The scopes that one service checks. */
export type ScopeOf<S extends Service> = Extract<Scope, `${S}:${string}`>;

export function isScope(name: unknown): name is Scope {
  return typeof name === 'string' && Object.hasOwn(SCOPES, name);
}

/**
 * Scopes that no issuer gives to a client, and that no file of a user holds: with `passport:exchange`, a stolen capability of a
 * client could be used from any network and at any rate.
 */
export const NODE_SCOPES: readonly Scope[] = Object.freeze<Scope[]>(['passport:exchange']);

export const SCOPE_NAMES: readonly Scope[] = Object.freeze(Object.keys(SCOPES).filter(isScope));

/** The service that checks a scope. */
export function scopeService(scope: Scope): Service {
  const service = scope.slice(0, scope.indexOf(':'));
  if (!isService(service)) throw new RangeError(`no service checks ${scope}`);
  return service;
}

const BY_SERVICE: ReadonlyMap<Service, readonly Scope[]> = new Map(
  SERVICES.map((service) => [service, SCOPE_NAMES.filter((scope) => scopeService(scope) === service)]),
);

/** All scopes of one service, in the order of the table. */
export function scopesOf(service: Service): readonly Scope[] {
  return BY_SERVICE.get(service) ?? [];
}

/** The scopes of one service that the owner of a node holds and may give to others. */
export function grantableScopesOf(service: Service): readonly Scope[] {
  return scopesOf(service).filter((scope) => !NODE_SCOPES.includes(scope));
}
