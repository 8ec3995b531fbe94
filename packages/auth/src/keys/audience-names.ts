/** The kms key from which the keys of all audiences are derived, and the labels for them. */

/** Kms creates it at its first start; its versions are the root keys. */
export const AUDIENCE_ROOT = 'ron/audience/hmac-sha256/00000000-0000-4000-8000-000000000001';
/** Its tenant: a capability to derive from it is restricted to this tenant. */
export const AUDIENCE_TENANT = 'ron';
/** The prefix of every label; the name of the audience follows. */
export const AUDIENCE_LABEL = 'audience/';
