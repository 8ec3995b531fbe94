/**
 * Names of keys, and the text that a signature covers.
 *
 *     <tenant>/<purpose>/<alg>/<uuid>#v<version>
 *
 * Contract: each name has one spelling. A tenant or purpose contains no separator and begins with a letter or digit, so a
 * name cannot be parsed in two ways, as a dot segment or as another tenant's.
 */
const KID =
  /^(?<tenant>[A-Za-z0-9][A-Za-z0-9._-]{0,63})\/(?<purpose>[a-z0-9][a-z0-9._-]{0,63})\/(?<alg>[a-z0-9-]{1,16})\/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?:#v(?<version>[1-9][0-9]{0,5}))?$/;

export interface KidParts {
  /** Without the version; common to all versions. */
  readonly name: string;
  readonly tenant: string;
  readonly purpose: string;
  /** Not checked: it may be unknown. */
  readonly alg: string;
  /** Undefined if the text names no version. */
  readonly version: number | undefined;
}

/** The parts of a kid; undefined if the text is not one. */
export function splitKid(text: string): KidParts | undefined {
  const groups = KID.exec(text)?.groups;
  if (groups === undefined) return undefined;
  const { tenant, purpose, alg, version } = groups as Record<'tenant' | 'purpose' | 'alg', string> & {
    version?: string;
  };
  const name = version === undefined ? text : text.slice(0, text.lastIndexOf('#'));
  return { name, tenant, purpose, alg, version: version === undefined ? undefined : Number(version) };
}

/** The signed text of a payload with this BLAKE3 hash, in hex. It is public and exact: OpenSSL can verify a signature. */
export function signedText(kid: string, payload_b3: string): string {
  return `ron-kms/v1\n${kid}\n${payload_b3}\n`;
}
