/** A mailbox with one bug planted in a module that `open-mailbox.ts` imports. */
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
    through: [urlOf('mailbox/open-mailbox.ts')],
  });
