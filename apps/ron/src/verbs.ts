/** Verbs of a command, such as `create` in `ron keys create`. */
import { usage } from './args.ts';

export interface VerbUsage {
  /** The arguments after the verb, for the usage line; optional ones are in brackets. */
  readonly args: string;
  /** Default: as many as `args` lists. */
  readonly args_max?: number;
  /** One sentence for the help. */
  readonly about: string;
}

/** Finds the verb in the arguments, and checks how many follow it. */
export function verbOf<V extends VerbUsage>(
  command: string,
  verbs: Readonly<Record<string, V>>,
  [name = '', ...args]: readonly string[],
): { readonly verb: V; readonly args: readonly string[] } {
  const verb = Object.hasOwn(verbs, name) ? verbs[name] : undefined;
  if (verb === undefined)
    throw usage({ name: command }, `unknown verb ${name}: expected ${Object.keys(verbs).join(', ')}`);
  const wanted = verb.args.split(' ').filter((each) => each !== '');
  const least = verb.args.startsWith('[') ? 0 : wanted.filter((each) => !each.startsWith('[')).length;
  if (args.length < least || args.length > (verb.args_max ?? wanted.length))
    throw usage({ name: command }, `expected \`${command} ${`${name} ${verb.args}`.trim()}\``);
  return { verb, args };
}

/** One line for each verb, for the help. */
export function verbLines(verbs: Readonly<Record<string, VerbUsage>>): string[] {
  return Object.entries(verbs).map(([name, { args, about }]) => `  ${`${name} ${args}`.trim()}: ${about}`);
}
