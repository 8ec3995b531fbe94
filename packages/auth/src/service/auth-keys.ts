/** The configuration keys of whoever checks capabilities, to be spread into the table of a service. */
import { key } from '@ron/config';
import type { Config } from '@ron/config';

const URL_TEXT = {
  pattern: /^(?:https?:\/\/[^\s/?#]+\/?|file:.+)$/,
  expects: 'a URL like http://127.0.0.1:7105, or file:PATH of a file that holds one',
  length_max: 4096,
};

export const AUTH_KEYS = {
  'auth.key_file': key.optional(
    key.text({
      doc: 'Keys that capabilities are checked with, for a service without kms. Default, when there is no auth.kms_url: `keys` in the data directory, made when it is missing.',
    }),
  ),
  'auth.kms_url': key.optional(
    key.text({ ...URL_TEXT, doc: 'Where kms is, which derives the keys that capabilities are checked with.' }),
  ),
  'auth.capability_file': key.optional(
    key.text({ doc: 'A file, mode 0600, with the capability to derive these keys.' }),
  ),
  'auth.cache_file': key.optional(
    key.text({
      doc: 'Derived keys and known revocations, sealed, so that the service starts while kms is away. Default: `auth/cache` in the data directory; in amnesia there is none.',
    }),
  ),
  'auth.keys_refresh': key.duration({
    default: '1m',
    min: '100ms',
    max: '1d',
    doc: 'How often kms is asked whether keys were retired. New ones are found when they are first met.',
    reloadable: true,
  }),
  'auth.passport_url': key.optional(
    key.text({ ...URL_TEXT, doc: 'Where passport is, which tells what is revoked. Default: nothing is.' }),
  ),
  'auth.revocations_max_age': key.optional(
    key.duration({
      min: '2s',
      max: '365d',
      doc: 'Refuse capabilities when passport was silent for so long. Default: go by what was last known.',
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
