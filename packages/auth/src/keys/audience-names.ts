/**
 * The root from which kms derives the keys of all audiences: its name in the audit log, and the labels of its keys.
 *
 * Contract: the tenant and the labels are reserved for the node. Kms refuses them in every request about ordinary keys.
 */

/** Its versions are the root keys. */
export const AUDIENCE_ROOT = 'ron/audience/hmac-sha256/00000000-0000-4000-8000-000000000001';
export const AUDIENCE_TENANT = 'ron';
/** The prefix of every label; the name of the audience follows. */
export const AUDIENCE_LABEL = 'audience/';

/** The label of the keys of one audience: a capability to derive them is restricted to it. */
export function audiencePrefix(audience: string): string {
  return `${AUDIENCE_LABEL}${audience}/`;
}

/** The label under which a version of the root yields the key of an audience. */
export function audienceLabel(audience: string, version: number): string {
  return `${audiencePrefix(audience)}v${version}`;
}
