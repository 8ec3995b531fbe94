/**
 * The directories of the volumes, as the configuration names them:
 *
 *     DIR[@domain=NAME][@weight=NUMBER][@draining]
 */

import { relative, resolve, sep } from 'node:path';

/** A plan walks over all of them at once, with one bit for each in a word. */
export const DIRS_MAX = 30;

export interface DataDir {
  readonly dir: string;
  /** Directories of one domain fail together. Default: each is its own. */
  readonly domain: string;
  /** Its share of the records relative to other directories. Default: the size of its file system. */
  readonly weight: number | undefined;
  /** Its records are moved to others, and it gets no new ones. */
  readonly isDraining: boolean;
}

const ITEM = /^(?<dir>.+?)(?<options>(?:@(?:domain=[\w.-]{1,64}|weight=\d{1,7}(?:\.\d{1,3})?|draining))*)$/;

/** Undefined when the item has another form. */
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

/** Whether no two of them are the same or nested: nested directories would be lost together. */
export function areApart(dirs: readonly string[]): boolean {
  const places = dirs.map((dir) => resolve(dir)).toSorted();
  return places.every((place, i) => places.slice(i + 1).every((other) => isOutside(relative(place, other))));
}

const isOutside = (path: string): boolean => path === '..' || path.startsWith(`..${sep}`);
