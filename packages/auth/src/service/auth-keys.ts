/** The configuration keys of a service that checks capabilities, to be spread into its table. */
import { isPrivate, PIN_PATTERN } from '@ron/client/node';
import { key } from '@ron/config';
import type { Config } from '@ron/config';

const URL_TEXT = {
  pattern: /^(?:unix:\/.+|https:\/\/[^\s/?#]+\/?)$/,
  expects: 'unix:/path of a socket, or a URL like https://kms.example:7105 with its pin; http:// is refused',
  length_max: 4096,
};

const PIN_TEXT = { pattern: PIN_PATTERN, expects: 'the SHA-256 of a public key (SPKI) in base64 or hex' };

export const AUTH_KEYS = {
  'auth.key_file': key.optional(
    key.text({
      doc: 'File of the capability keys, for a service without kms. Default without auth.kms_url: `keys` in the data directory, created if it is missing.',
    }),
  ),
  'auth.kms_url': key.optional(key.text({ ...URL_TEXT, doc: 'URL of kms, which derives the capability keys.' })),
  'auth.kms_pin': key.optional(
    key.text({ ...PIN_TEXT, doc: 'SHA-256 of the public key of kms (SPKI), in base64 or hex. Required for https://.' }),
  ),
  'auth.capability_file': key.optional(key.text({ doc: 'File, mode 0600, with the capability to derive these keys.' })),
  'auth.cache_file': key.optional(
    key.text({
      doc: 'Sealed file of derived keys and known revocations, so that the service starts while kms is down. Default: `auth/cache` in the data directory; none in amnesia.',
    }),
  ),
  'auth.keys_refresh': key.duration({
    default: '1s',
    min: '100ms',
    max: '1d',
    doc: 'How often kms is polled for new and retired roots of the capability keys.',
    reloadable: true,
  }),
  'auth.passport_url': key.optional(
    key.text({
      ...URL_TEXT,
      doc: 'URL of passport, which is polled for revocations. Default: none, no capability is revoked.',
    }),
  ),
  'auth.passport_pin': key.optional(
    key.text({
      ...PIN_TEXT,
      doc: 'SHA-256 of the public key of passport (SPKI), in base64 or hex. Required for https://.',
    }),
  ),
  'auth.revocations_max_age': key.optional(
    key.duration({
      min: '2s',
      max: '365d',
      doc: 'Refuse capabilities after this time without an answer from passport. Default: use the last known revocations.',
    }),
  ),
};

export type AuthConfig = Config<typeof AUTH_KEYS>['auth'];

/** Checks the keys of a caller of kms. */
export function checkAuthKeys(
  { auth }: { readonly auth: Pick<AuthConfig, 'kms_url' | 'kms_pin' | 'key_file' | 'capability_file'> },
  report: (key: 'auth.key_file' | 'auth.capability_file' | 'auth.kms_pin', expected: string) => void,
): void {
  if (auth.kms_url === undefined) return;
  if (!isPrivate(auth.kms_url, auth.kms_pin)) report('auth.kms_pin', PIN_EXPECTED);
  if (auth.key_file !== undefined) report('auth.key_file', 'nothing, because auth.kms_url is set');
  if (auth.capability_file === undefined) {
    report('auth.capability_file', 'a file with a capability, because auth.kms_url is set');
  }
}

/** Checks the keys of a service that polls passport. */
export function checkPassportKeys(
  { auth }: { readonly auth: Pick<AuthConfig, 'passport_url' | 'passport_pin'> },
  report: (key: 'auth.passport_pin', expected: string) => void,
): void {
  const { passport_pin, passport_url } = auth;
  if (passport_url !== undefined && !isPrivate(passport_url, passport_pin)) report('auth.passport_pin', PIN_EXPECTED);
}

const PIN_EXPECTED = 'the hash of the public key, because the URL is https';
