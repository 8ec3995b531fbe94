/** What a command is: its words, its flags, and what it does. */
import type { Exit } from './exits.ts';
import type { Io } from './io.ts';

export interface Option {
  readonly type: 'boolean' | 'string';
  /** May be given more than once. Default false. */
  readonly multiple?: boolean;
  readonly short?: string;
  /** What the value is, for the help: `FILE`. */
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
  /** How it is called, without `ron`. */
  readonly usage: string;
  /** What it does and when, in a few sentences. */
  readonly about: string;
  readonly options: O;
  /** At least and at most so many arguments. */
  readonly args: readonly [min: number, max: number];
  /** Command line to what it does. */
  readonly examples: Readonly<Record<string, string>>;
  /** The first arguments that make sense, for completion. */
  readonly words?: readonly string[];
  /** Set by a command for which Ctrl-C is not simply the end. */
  readonly ownSignals?: boolean;
  run(invocation: Invocation<O>): Promise<Exit | void>;
}

export function command<const O extends Options>(definition: Command<O>): Command<O> {
  return definition;
}

/** Flags that every command has. */
export const COMMON_OPTIONS = {
  json: { type: 'boolean', doc: 'Results as JSON, one value a line; an error as JSON on standard error.' },
  help: { type: 'boolean', short: 'h', doc: 'This text.' },
} as const satisfies Options;

/** Flags of commands that talk to a node. */
export const CONNECTION_OPTIONS = {
  dir: { type: 'string', value: 'DIR', doc: 'The directory of the node. Default: RON_DIR, or ./.ron.' },
  url: { type: 'string', value: 'URL', doc: 'Where the service is. Default: RON_URL, or what runs in the directory.' },
  'capability-file': {
    type: 'string',
    value: 'FILE',
    doc: 'The capability to use, wherever --url leads. Default: RON_CAPABILITY_FILE, or root.cap in the directory, which goes to that node only.',
  },
} as const satisfies Options;
