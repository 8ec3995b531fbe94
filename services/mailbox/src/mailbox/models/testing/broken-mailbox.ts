/** A mailbox with one bug planted in a module that `open-mailbox.ts` imports, or that opens its log. */
import { mutant } from '@ron/explorer';
import type { Parts } from './model-mailbox.ts';

export interface Bug {
  readonly bug: string;
  /** Below `src/`. */
  readonly file: string;
  /** Occurs once in the file. */
  readonly find: string;
  readonly replace: string;
  /** The failure that the model reports. */
  readonly caught: RegExp;
}

const urlOf = (path: string): string => new URL(`../../../${path}`, import.meta.url).href;

export const brokenMailbox = ({ file, find, replace }: Bug): Promise<Parts> =>
  mutant(urlOf(file), find, replace, {
    entry: urlOf('mailbox/mailbox.ts'),
    through: ['mailbox/open-mailbox.ts', 'store/mailbox-log.ts', 'store/open-log.ts'].map(urlOf),
  });
