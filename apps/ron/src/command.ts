/** The definition of a command: name, arguments, flags, help and action. */
import type { Exit } from './exits.ts';
import type { Io } from './io.ts';

export interface Option {
  readonly type: 'boolean' | 'string';
  /** May be given more than once. Default false. */
  readonly multiple?: boolean;
  readonly short?: string;
  /** Placeholder of the value in the help: `FILE`. */
  readonly value?: string;
  /** One sentence. */
  readonly doc: string;
}

export type Options = Readonly<Record<string, Option>>;

type ValueOf<O extends Option> = O['type'] extends 'boolean'
  ? boolean
  : O['multiple'] extends true
    ? readonly string[]
    : string;

/** The flags that were given. */
export type Values<O extends Options> = { readonly [Name in keyof O]?: ValueOf<O[Name]> | undefined };

export interface Invocation<O extends Options> {
  readonly values: Values<O>;
  readonly args: readonly string[];
  readonly io: Io;
  /** Aborted by Ctrl-C and SIGTERM, unless the command handles signals itself. */
  readonly signal: AbortSignal;
}

export interface Command<O extends Options = Options> {
  readonly name: string;
  /** The usage line, without `ron`. */
  readonly usage: string;
  /** Its description for the help, in a few sentences. */
  readonly about: string;
  readonly options: O;
  /** The number of arguments. */
  readonly args: readonly [min: number, max: number];
  /** Maps a command line to its description. */
  readonly examples: Readonly<Record<string, string>>;
  /** Values of the first argument, for shell completion. */
  readonly words?: readonly string[];
  /** Whether the command handles SIGINT and SIGTERM itself. Default false. */
  readonly ownSignals?: boolean;
  run(invocation: Invocation<O>): Promise<Exit | void>;
}

export function command<const O extends Options>(definition: Command<O>): Command<O> {
  return definition;
}

/** Flags that every command has. */
export const COMMON_OPTIONS = {
  json: { type: 'boolean', doc: 'Print results as JSON Lines, and errors as JSON on standard error.' },
  help: { type: 'boolean', short: 'h', doc: 'Print this help.' },
} as const satisfies Options;

/** Flags of commands that connect to a node. */
export const CONNECTION_OPTIONS = {
  dir: { type: 'string', value: 'DIR', doc: 'The directory of the node. Default: RON_DIR, or ./.ron.' },
  url: {
    type: 'string',
    value: 'URL',
    doc: 'The URL of the service, or unix:PATH of its socket. Default: RON_URL, or the service that runs in the directory.',
  },
  pin: {
    type: 'string',
    value: 'HASH',
    doc: 'SHA-256 of the public key (SPKI) of an https server; required to send a capability there. Default: RON_TLS_PIN.',
  },
  'capability-file': {
    type: 'string',
    value: 'FILE',
    doc: 'The capability to send, even to another node. Default: RON_CAPABILITY_FILE, or root.cap in the directory, which is sent to that node only.',
  },
} as const satisfies Options;
