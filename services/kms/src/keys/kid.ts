/** Names of keys; see the grammar in proto. Without `#v` a kid means the key, or its current version. */
import { isAlg, type Alg } from '@ron/custody';
import { RonError } from '@ron/kernel';
import { splitKid, type KidParts } from '@ron/proto';

export const TENANT_PATTERN = '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$';
export const PURPOSE_PATTERN = '^[a-z0-9][a-z0-9._-]{0,63}$';
/** The longest kid. */
export const KID_CHARS_MAX = 256;

/** Keys with this purpose sign and verify the given bytes unchanged. */
export const RAW_PURPOSE = 'raw';

export interface Kid extends KidParts {
  readonly alg: Alg;
}

/** Parses a kid, or throws `validation` with the expected form. */
export function parseKid(text: string): Kid {
  const parts = splitKid(text);
  if (parts !== undefined && isAlg(parts.alg)) return parts as Kid;
  throw new RonError(
    'validation',
    'a kid has the form <tenant>/<purpose>/<alg>/<uuid>, with #v<number> for one version',
  );
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
