/** The verbs of `ron name` that sign. */
import type { VerifiedName } from '@ron/client';
import { isRonError, sched } from '@ron/kernel/core';
import { ADDRESS_PREFIX, type Address } from '@ron/proto';
import { NAME_LIFE_S_MAX } from '@ron/proto/names';
import { usage } from '../args.ts';
import type { NameInvocation } from '../commands/name.ts';
import { confirm } from '../confirm.ts';
import { CliError } from '../exits.ts';
import type { Io } from '../io.ts';
import { putFile } from '../put-file.ts';
import { addressArg } from '../storage.ts';
import { labelArg } from './name-arg.ts';
import { keyFor, nameKeys, publicKeyArg } from './name-keys.ts';
import type { NodeServices } from './node-services.ts';
import { numberArg } from '../quantity-args.ts';
import { isOver, lifeArg, publish, ttlArg } from './publish.ts';
import { setName } from './set-name.ts';
import { contentOf, dateOf, nameJson } from './show-name.ts';

const DAY_S = 86_400;
const WITHIN_DAYS = 30;

type Args = readonly string[];

export async function set({ values, io }: NameInvocation, services: NodeServices, [name, source]: Args): Promise<void> {
  const label = labelArg(name!);
  const [life_s, ttl_s] = [lifeArg(values.days), ttlArg(values.ttl)];
  const address = source!.startsWith(ADDRESS_PREFIX)
    ? addressArg(source)
    : (await putFile(source!, { io, withStorage: services.storage })).address;
  printName(io, await setName({ label, address, key: values.key, life_s, ttl_s }, services, io));
}

/** Renews one name, or all that expire soon. A name that another command changed meanwhile is reported. */
export async function renew({ values, io }: NameInvocation, services: NodeServices, [name]: Args): Promise<void> {
  const life_s = lifeArg(values.days);
  if (name !== undefined) return printName(io, await renewed(labelArg(name), values.key, life_s, services, io));
  const days = values.within === undefined ? WITHIN_DAYS : numberArg('--within', values.within, 0, 731);
  const before_s = sched.wall_ms() / 1000 + days * DAY_S;
  const own = new Set((await nameKeys(services)).map(({ key }) => key));
  const names = await services.index((index) => Array.fromAsync(index.names()));
  const due = names.filter(({ record }) => record.value !== undefined && record.not_after < before_s);
  for (const { record } of due) {
    if (own.has(record.key)) printName(io, await renewed(record.label, record.key, life_s, services, io));
    else io.note(`${record.label} is not renewed: kms has no key ${record.key}`);
  }
  if (due.length === 0) io.note(`no name expires within ${days} days`);
}

async function renewed(
  label: string,
  wanted: string | undefined,
  life_s: number,
  services: NodeServices,
  io: Io,
): Promise<VerifiedName> {
  const key = await keyFor(label, wanted, services, io);
  const next = (current: VerifiedName | undefined): { value: Address } => {
    const value = current?.record.value;
    if (value === undefined) throw noSuchName(label, 'set it with `ron name set`');
    return { value };
  };
  return await publish({ label, key, next, onConflict: 'fail', life_s, ttl_s: undefined }, services, io);
}

export async function remove({ values, io }: NameInvocation, services: NodeServices, [name]: Args): Promise<void> {
  const label = labelArg(name!);
  const key = await keyFor(label, values.key, services, io);
  const next = (current: VerifiedName | undefined): object | undefined => {
    if (current === undefined) throw noSuchName(label);
    return current.record.value === undefined && !isOver(current) ? undefined : {};
  };
  const life_s = lifeArg(values.days);
  printName(io, await publish({ label, key, next, onConflict: 'fail', life_s, ttl_s: undefined }, services, io));
}

export async function move(invocation: NameInvocation, services: NodeServices, [name, to]: Args): Promise<void> {
  const { values, io } = invocation;
  const label = labelArg(name!);
  const moved_to = await publicKeyArg(to!, services);
  const key = await keyFor(label, values.key, services, io);
  if (key.key === moved_to) throw usage({ name: 'name' }, `${label} already belongs to this key`);
  const current = await services.index((index) => index.name({ label, key: key.key }));
  await confirm(invocation, 'name', `${label} belongs to ${moved_to} from now on; your key cannot publish it again.`);
  await publishUnder(moved_to, current, services, io);
  const next = (): { moved_to: string } => ({ moved_to });
  // The longest life: the old key cannot renew it. A reader after that has to know the new key.
  const life_s = NAME_LIFE_S_MAX - DAY_S;
  printName(io, await publish({ label, key, next, onConflict: 'fail', life_s, ttl_s: undefined }, services, io));
}

/** The new key publishes the address first, so that the name never stands for nothing. */
async function publishUnder(key: string, current: VerifiedName, services: NodeServices, io: Io): Promise<void> {
  const { label, value } = current.record;
  const isOwn = (await nameKeys(services)).some((each) => each.key === key);
  if (isOwn && value !== undefined) {
    await setName({ label, address: value, key }, services, io);
    return;
  }
  try {
    await services.index((index) => index.name({ label, key }));
  } catch (error) {
    if (!isRonError(error, 'not_found')) throw error;
    io.note(`the new key has not published ${label}: the name has no address until it does`);
  }
}

const noSuchName = (label: string, hint?: string): CliError =>
  new CliError('no_input', `${label} has no address${hint === undefined ? '' : `: ${hint}`}`, 'not_found');

function printName(io: Io, name: VerifiedName): void {
  const { label, seq, not_after } = name.record;
  io.result(`${label}  ${contentOf(name.record)}  seq ${seq}, until ${dateOf(not_after)}`, nameJson(name));
}
