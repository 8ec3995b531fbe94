/** The flags of `ron keys rekey`. */
import type { Option } from '../command.ts';

export const REKEY_OPTIONS = {
  'new-kek-file': { type: 'string', value: 'FILE', doc: 'rekey: a file with the new 32-byte key, in hex or base64.' },
  'new-passphrase-file': { type: 'string', value: 'FILE', doc: 'rekey: a file with the new passphrase.' },
  generate: { type: 'boolean', doc: 'rekey: write a new random key into the present key file.' },
  config: { type: 'string', value: 'FILE', doc: 'rekey: the configuration file of `ron up`. Default: none.' },
  set: { type: 'string', multiple: true, value: 'SERVICE.KEY=VALUE', doc: 'rekey: as for `ron up`. Repeatable.' },
} as const satisfies Record<string, Option>;
