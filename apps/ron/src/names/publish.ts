/**
 * Signs and publishes the next record of a name.
 *
 * Contract: the record follows the one that the index holds. If another publisher was first, `onConflict: 'retry'` publishes
 * once more after its record, which the caller chooses if the outcome is the one that the user asked for; otherwise the
 * command fails and shows both records.
 */
import { conflictOf, type VerifiedName } from '@ron/client';
import { isRonError, sched } from '@ron/kernel/core';
import type { Address, SignedNameDto } from '@ron/proto';
import {
  encodeNameRecord,
  NAME_LIFE_S,
  NAME_LIFE_S_MAX,
  NAME_TTL_S_MAX,
  signedNameBytes,
  type NameRecord,
} from '@ron/proto/names';
import { CliError } from '../exits.ts';
import { numberArg } from '../quantity-args.ts';
import type { Io } from '../io.ts';
import type { NameKey } from './name-keys.ts';
import type { NodeServices } from './node-services.ts';
import { contentOf } from './show-name.ts';

const DAY_S = 86_400;
const TTL_S = 60;

/** The content of the next record. Neither member: the name is removed. */
export interface NameContent {
  readonly value?: Address | undefined;
  readonly moved_to?: string | undefined;
}

export interface PublishInit {
  readonly label: string;
  readonly key: NameKey;
  /** Undefined: the current record is as wanted already. Throws if it does not allow the change. */
  readonly next: (current: VerifiedName | undefined) => NameContent | undefined;
  readonly onConflict: 'retry' | 'fail';
  readonly life_s: number;
  /** Default: that of the current record, or 60. */
  readonly ttl_s: number | undefined;
}

export async function publish(init: PublishInit, services: NodeServices, io: Io): Promise<VerifiedName> {
  const { label, onConflict } = init;
  const current = await currentOf(init, services);
  const first = await tryAfter(current, init, services);
  if (first.published !== undefined) return first.published;
  const { winner } = first;
  // An expired record is not served, but publishing continues after it.
  const isExpected = current === undefined && isOver(winner);
  if (!isExpected && onConflict === 'fail') throw conflict(init, current, winner);
  if (!isExpected)
    io.note(`${label} was changed by another command to ${contentOf(winner.record)}; publishing after it`);
  const second = await tryAfter(winner, init, services);
  if (second.published !== undefined) return second.published;
  throw conflict(init, winner, second.winner);
}

type Attempt =
  | { readonly published: VerifiedName; readonly winner?: undefined }
  | { readonly published?: undefined; readonly winner: VerifiedName };

/** Publishes after `current`; `winner` is the record that is current instead. */
async function tryAfter(
  current: VerifiedName | undefined,
  init: PublishInit,
  services: NodeServices,
): Promise<Attempt> {
  try {
    return { published: await publishAfter(current, init, services) };
  } catch (error) {
    const winner = await conflictOf(error, { label: init.label, key: init.key.key });
    if (winner === undefined) throw error;
    return { winner };
  }
}

async function currentOf({ label, key }: PublishInit, services: NodeServices): Promise<VerifiedName | undefined> {
  try {
    return await services.index((index) => index.name({ label, key: key.key }, { expired: true }));
  } catch (error) {
    if (isRonError(error, 'not_found')) return undefined;
    throw error;
  }
}

async function publishAfter(
  current: VerifiedName | undefined,
  init: PublishInit,
  services: NodeServices,
): Promise<VerifiedName> {
  const { label, key, next, life_s, ttl_s } = init;
  if (current !== undefined) requireOpen(current);
  const content = next(current);
  if (content === undefined) return current!;
  const record: NameRecord = {
    key: key.key,
    label,
    ...content,
    seq: (current?.record.seq ?? 0) + 1,
    not_after: Math.floor(sched.wall_ms() / 1000) + life_s,
    ttl_s: ttl_s ?? current?.record.ttl_s ?? TTL_S,
    previous: current?.hash,
  };
  const signed = await signedBy(key, record, services);
  return await services.index((index) => index.putName(label, signed));
}

async function signedBy(key: NameKey, record: NameRecord, services: NodeServices): Promise<SignedNameDto> {
  const bytes = encodeNameRecord(record);
  const message_b64 = Buffer.from(signedNameBytes(bytes)).toString('base64');
  const { sigs } = await services.kms((kms) => kms.sign({ kid: key.kid, message_b64 }));
  const signature = Buffer.from(sigs[0]?.signature_b64 ?? '', 'base64').toString('base64url');
  return { record: Buffer.from(bytes).toString('base64url'), signature };
}

/** A move is the last record of its key. */
function requireOpen({ record: { label, moved_to } }: VerifiedName): void {
  if (moved_to === undefined) return;
  throw new CliError('failed', `${label} was moved to the key ${moved_to}, which publishes it from then on`);
}

export const isOver = ({ record: { not_after } }: Pick<VerifiedName, 'record'>): boolean =>
  not_after * 1000 <= sched.wall_ms();

function conflict({ label, next }: PublishInit, current: VerifiedName | undefined, winner: VerifiedName): CliError {
  const lines = [
    `${label} was changed meanwhile; nothing was published`,
    `now:   ${contentOf(winner.record)}, seq ${winner.record.seq}, record ${winner.hash}`,
    `yours: ${contentOf(next(current) ?? {})}`,
    'repeat the command if yours is still right',
  ];
  return new CliError('failed', lines.join('\n     '), 'conflict');
}

/** `--days`: the life of a record. */
export function lifeArg(text: string | undefined): number {
  if (text === undefined) return NAME_LIFE_S;
  const days_max = Math.floor(NAME_LIFE_S_MAX / DAY_S) - 1;
  return DAY_S * numberArg('--days', text, 1, days_max);
}

/** `--ttl`, in seconds. */
export function ttlArg(text: string | undefined): number | undefined {
  return text === undefined ? undefined : numberArg('--ttl', text, 0, NAME_TTL_S_MAX);
}
