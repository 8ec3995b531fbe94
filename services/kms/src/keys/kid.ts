/**
 * Names of keys: `<tenant>/<purpose>/<alg>/<uuid>#v<version>`.
 *
 * Contract: each name has one spelling. A tenant or purpose contains no separator and begins with a letter or digit, so a
 * name cannot be parsed in two ways, as a dot segment or as another tenant's. Without `#v` it means the current version.
 */
import { isAlg, type Alg } from '@ron/custody';
import { RonError } from '@ron/kernel';

export const TENANT_PATTERN = '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$';
export const PURPOSE_PATTERN = '^[a-z0-9][a-z0-9._-]{0,63}$';
/** The longest kid. */
export const KID_CHARS_MAX = 256;

const KID =
  /^(?<tenant>[A-Za-z0-9][A-Za-z0-9._-]{0,63})\/(?<purpose>[a-z0-9][a-z0-9._-]{0,63})\/(?<alg>[a-z0-9-]{1,16})\/(?<id>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(?:#v(?<version>[1-9][0-9]{0,5}))?$/;

/** Keys with this purpose sign and verify the given bytes unchanged. */
export const RAW_PURPOSE = 'raw';

export interface Kid {
  /** Without the version; common to all versions. */
  readonly name: string;
  readonly tenant: string;
  readonly purpose: string;
  readonly alg: Alg;
  /** Undefined: the current version. */
  readonly version: number | undefined;
}

/** Parses a kid, or throws `validation` with the expected form. */
export function parseKid(text: string): Kid {
  const groups = KID.exec(text)?.groups;
  const alg = groups?.['alg'];
  if (groups === undefined || !isAlg(alg)) {
    throw new RonError(
      'validation',
      'a kid has the form <tenant>/<purpose>/<alg>/<uuid>, with #v<number> for one version',
    );
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

/** The text before the version. The text need not be a valid kid. */
export function nameOf(text: string): string {
  const at = text.lastIndexOf('#');
  return at < 0 ? text : text.slice(0, at);
}

/** The text before the first slash, which is the tenant of a valid kid. Access checks compare it literally. */
export function tenantOf(text: string): string {
  const at = text.indexOf('/');
  return at < 0 ? text : text.slice(0, at);
}
