/** Reads names for commands. */
import { isRonError } from '@ron/kernel/core';
import type { Address } from '@ron/proto';
import { CliError } from '../exits.ts';
import type { Io } from '../io.ts';
import { targetArg } from './name-arg.ts';
import type { NodeServices } from './node-services.ts';

/** The address that a name stands for, by its verified record. */
export async function addressOfName(text: string, services: NodeServices, io: Io): Promise<Address> {
  const target = targetArg(text);
  if (target.kind === 'address') return target.address;
  const { record, rival } = await orMissing(
    text,
    services.index((index) => index.followed(target)),
  );
  if (record.value === undefined) throw new CliError('no_input', `${text} was removed`, 'not_found');
  if (rival !== undefined) {
    const other = rival.record.value ?? 'no address';
    io.note(`${text} is forked: its key also signed ${other}; using ${record.value}. See \`ron name history ${text}\``);
  }
  return record.value;
}

/** Adds the name to the error if it is not found. */
export async function orMissing<T>(text: string, reading: Promise<T>): Promise<T> {
  try {
    return await reading;
  } catch (error) {
    if (!isRonError(error, 'not_found')) throw error;
    throw new CliError(
      'no_input',
      `${text}: ${error.message}; \`ron name ls\` lists the names of this node`,
      'not_found',
    );
  }
}
