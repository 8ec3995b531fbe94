/** The address that a name stands for, by its verified record. */
import type { Address } from '@ron/proto';
import { CliError } from '../exits.ts';
import type { Io } from '../io.ts';
import { targetArg } from './name-arg.ts';
import type { NodeServices } from './node-services.ts';

export async function addressOfName(text: string, services: NodeServices, io: Io): Promise<Address> {
  const target = targetArg(text);
  if (target.kind === 'address') return target.address;
  const { record, rival } = await services.index((index) => index.followed(target));
  if (record.value === undefined) throw new CliError('no_input', `${text} was removed`, 'not_found');
  if (rival !== undefined) {
    const other = rival.record.value ?? 'no address';
    io.note(`${text} is forked: its key also signed ${other}; using ${record.value}. See \`ron name history ${text}\``);
  }
  return record.value;
}
