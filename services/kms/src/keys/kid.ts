/**
 * Names of keys: `<tenant>/<purpose>/<alg>/<uuid>#v<version>`.
 *
 * Promise: one spelling each. A tenant or a purpose holds no separator and begins with a letter or digit, so no part of a
 * name can be read as two, as a dot segment or as another tenant's. Without `#v` a name stands for the current version.
 */
import { isAlg, type Alg } from '@ron/custody';
import { RonError } from '@ron/kernel';

export const TENANT_PATTERN = '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$';
export const PURPOSE_PATTERN = '^[a-z0-9][a-z0-9._-]{0,63}$';
/** Longest name of a key version. */
export const KID_CHARS_MAX = 256;

const KID =
  /^(?<tenant>[A-Za-z0-9][A-Za-z0-9._-]{0,63})\/(?<purpose>[a-z0-9][a-z0-9._-]{0,63})\/(?<alg>[a-z0-9-]{1,16})\/(?<id>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(?:#v(?<version>[1-9][0-9]{0,5}))?$/;

/** Keys of this purpose sign and verify bytes as they are given. */
export const RAW_PURPOSE = 'raw';

export interface Kid {
  /** Without the version: what all versions have in common. */
  readonly name: string;
  readonly tenant: string;
  readonly purpose: string;
  readonly alg: Alg;
  /** Undefined: the current one. */
  readonly version: number | undefined;
}

/** The parts of a name, or a 400 that says what one looks like. */
export function parseKid(text: string): Kid {
  const groups = KID.exec(text)?.groups;
  const alg = groups?.['alg'];
  if (groups === undefined || !isAlg(alg)) {
    throw new RonError('validation', 'a kid is <tenant>/<purpose>/<alg>/<uuid>, and #v<number> for one version');
  }
  const version = groups['version'];
  return {
    name: nameOf(text),
    tenant: groups['tenant']!,
    purpose: groups['purpose']!,
    alg,
    version: version === undefined ? undefined : Number(version),
  };
}

export function formatKid(name: string, version: number): string {
  return `${name}#v${version}`;
}

/** What stands before the version. For text that need not be a kid. */
export function nameOf(text: string): string {
  const at = text.lastIndexOf('#');
  return at < 0 ? text : text.slice(0, at);
}

/** What stands before the first slash: the tenant, if it is a kid. For access checks, which compare it as it is. */
export function tenantOf(text: string): string {
  const at = text.indexOf('/');
  return at < 0 ? text : text.slice(0, at);
}
