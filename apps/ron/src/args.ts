/**
 * Parses the arguments of a command.
 *
 * Contract: an unknown flag, a missing or unexpected value, and a wrong number of arguments are `usage` errors. The message
 * suggests the nearest known flag; the parser never guesses.
 */
import { parseArgs } from 'node:util';
import { nearest } from '@ron/config/nearest';
import { COMMON_OPTIONS, type Command, type Options, type Values } from './command.ts';
import { CliError } from './exits.ts';

export interface Parsed {
  readonly values: Values<Options> & { readonly json?: boolean; readonly help?: boolean };
  readonly args: readonly string[];
}

export function parse(command: Command, argv: readonly string[]): Parsed {
  const options: Options = { ...COMMON_OPTIONS, ...command.options };
  const { tokens } = parseArgs({
    args: [...argv],
    options: Object.fromEntries(Object.entries(options).map(([name, { type, short }]) => [name, flag(type, short)])),
    strict: false,
    allowPositionals: true,
    tokens: true,
  });
  const values: Record<string, unknown> = {};
  const args: string[] = [];
  for (const token of tokens) {
    if (token.kind === 'positional') args.push(token.value);
    if (token.kind !== 'option') continue;
    const option = Object.hasOwn(options, token.name) ? options[token.name]! : unknown(command, token.rawName, options);
    values[token.name] = valueOf(token, option, values[token.name], command);
  }
  if (values['help'] !== true) checkCount(command, args);
  return { values: values as Parsed['values'], args };
}

const flag = (type: 'boolean' | 'string', short: string | undefined): { type: 'boolean' | 'string'; short?: string } =>
  short === undefined ? { type } : { type, short };

interface OptionToken {
  readonly rawName: string;
  readonly value: string | undefined;
  readonly inlineValue: boolean | undefined;
}

function valueOf(token: OptionToken, option: Options[string], before: unknown, command: Command): unknown {
  const { rawName, value, inlineValue } = token;
  if (option.type === 'boolean') {
    if (value !== undefined) throw usage(command, `${rawName} takes no value`);
    return true;
  }
  // Does not consume the next flag: `--dir --json` is a mistake, `--dir=--json` is intended.
  if (value === undefined || (inlineValue !== true && value.startsWith('-') && value !== '-')) {
    throw usage(command, `${rawName} needs a value: ${rawName} ${option.value ?? 'VALUE'}`);
  }
  if (option.multiple === true) return [...((before as string[] | undefined) ?? []), value];
  if (before !== undefined) throw usage(command, `duplicate flag ${rawName}`);
  return value;
}

function unknown(command: Command, rawName: string, options: Options): never {
  const names = Object.keys(options).map((name) => `--${name}`);
  const meant = rawName.startsWith('--') ? nearest(rawName, names) : undefined;
  throw usage(command, `unknown flag ${rawName}${meant === undefined ? '' : `: did you mean ${meant}?`}`);
}

function checkCount(command: Command, args: readonly string[]): void {
  const [min, max] = command.args;
  if (args.length >= min && args.length <= max) return;
  const problem = args.length < min ? 'missing argument' : `unexpected argument ${JSON.stringify(args[max])}`;
  throw usage(command, `${problem}; usage: ron ${command.usage}`);
}

export function usage(command: Pick<Command, 'name'>, message: string): CliError {
  return new CliError('usage', `${message}\n     run \`ron ${command.name} --help\` for details`);
}
