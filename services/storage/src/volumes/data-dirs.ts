/**
 * The directories that objects are kept in, as the configuration names them:
 *
 *     DIR[@domain=NAME][@weight=NUMBER][@draining]
 */

import { relative, resolve, sep } from 'node:path';

/** A plan walks over all of them at once, and remembers in one word who has what. */
export const DIRS_MAX = 30;

export interface DataDir {
  readonly dir: string;
  /** Directories of one domain fail together. Default: each is its own. */
  readonly domain: string;
  /** How much it gets, compared with others. Default: the size of its file system. */
  readonly weight: number | undefined;
  /** What it holds is moved to others, and nothing new goes there. */
  readonly isDraining: boolean;
}

const ITEM = /^(?<dir>.+?)(?<options>(?:@(?:domain=[\w.-]{1,64}|weight=\d{1,7}(?:\.\d{1,3})?|draining))*)$/;

/** Undefined when it is not of this form. */
export function parseDataDir(item: string): DataDir | undefined {
  const { dir, options = '' } = ITEM.exec(item)?.groups ?? {};
  if (dir === undefined || /@(?:domain|weight)=|@draining$/.test(dir)) return undefined;
  const given = options.split('@');
  const valueOf = (name: string): string | undefined =>
    given.findLast((option) => option.startsWith(`${name}=`))?.slice(name.length + 1);
  const weight = valueOf('weight') === undefined ? undefined : Number(valueOf('weight'));
  if (weight === 0) return undefined;
  return { dir, domain: valueOf('domain') ?? dir, weight, isDraining: given.includes('draining') };
}

/** The item of a directory, absolute, with its options. */
export function formatDataDir({ dir, domain, weight, isDraining }: DataDir): string {
  const options = [
    ...(domain === dir ? [] : [`@domain=${domain}`]),
    ...(weight === undefined ? [] : [`@weight=${weight}`]),
    ...(isDraining ? ['@draining'] : []),
  ];
  return `${resolve(dir)}${options.join('')}`;
}

/** Whether two of them are the same, or one lies in the other: what happens to that one happens to both. */
export function areApart(dirs: readonly string[]): boolean {
  const places = dirs.map((dir) => resolve(dir)).toSorted();
  return places.every((place, i) => places.slice(i + 1).every((other) => isOutside(relative(place, other))));
}

const isOutside = (path: string): boolean => path === '..' || path.startsWith(`..${sep}`);
