/** Arguments that name objects: `b3:<hex>`, or `<label>` and `<label>@<key>`, with or without `name:`. */
import { ADDRESS_PREFIX, checkName, checkTarget, isLabelPrefix, NAME_PREFIX, type Target } from '@ron/proto';
import { CliError } from '../exits.ts';

export type NameTarget = Extract<Target, { readonly kind: 'name' }>;

export function targetArg(text: string): Target {
  const isWhole = text.startsWith(ADDRESS_PREFIX) || text.startsWith(NAME_PREFIX);
  const result = isWhole ? checkTarget(text) : checkName(text);
  if (result.ok) return result.target;
  const what = text.startsWith(ADDRESS_PREFIX) ? 'address' : 'name';
  throw new CliError('usage', `${JSON.stringify(text)} is not a valid ${what}: ${result.problem}`);
}

export function nameArg(text: string): NameTarget {
  const target = targetArg(text);
  if (target.kind === 'name') return target;
  throw new CliError('usage', `${text} is an address, not a name`);
}

/** A label that is about to be published, which has no key in it. */
export function labelArg(text: string): string {
  const { label, key } = nameArg(text);
  if (key === undefined) return label;
  throw new CliError('usage', `${text} has a key: give the label alone, and choose the key with --key`);
}

/** A prefix of the trust list. `/` is the empty one. */
export function prefixArg(text: string): string {
  const prefix = text === '/' ? '' : text.replace(/^name:/, '');
  if (isLabelPrefix(prefix)) return prefix;
  throw new CliError(
    'usage',
    `${JSON.stringify(text)} is not a prefix of labels: give whole segments, or / for all labels`,
  );
}
