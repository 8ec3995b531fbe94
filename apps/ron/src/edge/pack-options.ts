/** The flags of `ron pack`. */
import { CONNECTION_OPTIONS, type Invocation, type Options } from '../command.ts';

export const PACK_OPTIONS = {
  name: {
    type: 'string',
    value: 'NAME',
    doc: 'add: the name of the pack, of a-z, 0-9, _ and -. Default: the name of the file without its extension.',
  },
  expect: {
    type: 'string',
    value: 'ADDRESS',
    doc: 'add, verify: fail if the bytes have another address.',
  },
  yes: { type: 'boolean', doc: 'rm: confirm. Required without a terminal.' },
  ...CONNECTION_OPTIONS,
} as const satisfies Options;

export type PackInvocation = Invocation<typeof PACK_OPTIONS>;
