/**
 * The environment of each service.
 *
 * Contract: a service gets the variables in `KEPT`, those that configure it, and nothing else: a secret in the environment of
 * `ron up` does not reach it. The service that `holds_secrets` (kms) gets the whole environment, because PKCS #11 modules and
 * cloud clients read variables of their own, but not the configuration of other services. `RON_KEK` of any other service is a
 * key that is derived from that of the node for this service alone.
 */
import { SECRET_VARIABLES, SERVICES } from '@ron/proto';
import type { ServiceEntry } from './table/service-entry.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

/** The system, Node and the C library. */
const KEPT = /^(PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|TZ|TMPDIR|TERM|(LC|XDG|NODE|UV|MALLOC|GLIBC|LD|SSL|OPENSSL)_.*)$/;

type Named = Pick<ServiceEntry, 'name' | 'holds_secrets'>;

/** `kek` is the key of this service, if the node has one. */
export function environmentOf({ name, holds_secrets }: Named, env: Environment, kek: string | undefined): Environment {
  const isForeign = (variable: string): boolean =>
    SERVICES.some((each) => each !== name && variable.startsWith(prefixOf(each)));
  const isKept = (variable: string): boolean =>
    holds_secrets === true ? !isForeign(variable) : KEPT.test(variable) || variable.startsWith(prefixOf(name));
  const kept = Object.entries(env).filter(([variable]) => isKept(variable));
  return { ...Object.fromEntries(kept), ...(kek !== undefined && { RON_KEK: kek }) };
}

/** Whether `ron up` keeps a secret: it needs those of kms to start it again after a crash. */
export const holdsSecrets = (env: Environment): boolean =>
  [...SECRET_VARIABLES, 'AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN'].some((name) => env[name] !== undefined);

/** The environment of a process that runs no service. */
export const withoutSecrets = (env: Environment): Environment =>
  Object.fromEntries(Object.entries(env).filter(([variable]) => KEPT.test(variable)));

const prefixOf = (name: string): string => `RON_${name.toUpperCase()}_`;
