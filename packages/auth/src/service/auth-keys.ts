/** The configuration keys of a service that checks capabilities, to be spread into its table. */
import { key } from '@ron/config';
import type { Config } from '@ron/config';

const URL_TEXT = {
  pattern: /^(?:https?:\/\/[^\s/?#]+\/?|file:.+)$/,
  expects: 'a URL like http://127.0.0.1:7105, or file:PATH of a file that contains one',
  length_max: 4096,
};

export const AUTH_KEYS = {
  'auth.key_file': key.optional(
    key.text({
      doc: 'File of the capability keys, for a service without kms. Default without auth.kms_url: `keys` in the data directory, created if it is missing.',
    }),
  ),
  'auth.kms_url': key.optional(key.text({ ...URL_TEXT, doc: 'URL of kms, which derives the capability keys.' })),
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
  'auth.revocations_max_age': key.optional(
    key.duration({
      min: '2s',
      max: '365d',
      doc: 'Refuse capabilities after this time without an answer from passport. Default: use the last known revocations.',
    }),
  ),
};

export type AuthConfig = Config<typeof AUTH_KEYS>['auth'];

export function checkAuthKeys(
  { auth }: { readonly auth: Pick<AuthConfig, 'kms_url' | 'key_file' | 'capability_file'> },
  report: (key: 'auth.key_file' | 'auth.capability_file', expected: string) => void,
): void {
  if (auth.kms_url !== undefined && auth.key_file !== undefined) {
    report('auth.key_file', 'nothing, because auth.kms_url is set');
  }
  if (auth.kms_url !== undefined && auth.capability_file === undefined) {
    report('auth.capability_file', 'a file with a capability, because auth.kms_url is set');
  }
}
