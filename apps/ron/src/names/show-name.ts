/** Names as text and as JSON. */
import type { VerifiedName, VerifiedRecord } from '@ron/client';
import { sched } from '@ron/kernel/core';
import type { NameRecord } from '@ron/proto/names';

const DAY_MS = 86_400_000;

/** The content of a record in a few words. */
export function contentOf({ value, moved_to }: Pick<NameRecord, 'value' | 'moved_to'>): string {
  if (moved_to !== undefined) return `moved to ${moved_to}`;
  return value ?? 'removed';
}

export const dateOf = (time_s: number): string => new Date(time_s * 1000).toISOString();

/** The whole days that are left, such as `expires in 364 days`. */
export function expiryOf({ not_after }: Pick<NameRecord, 'not_after'>): string {
  const left_ms = not_after * 1000 - sched.wall_ms();
  if (left_ms <= 0) return 'expired';
  const days = Math.floor(left_ms / DAY_MS);
  return days === 0 ? 'expires in less than a day' : `expires in ${days} day${days === 1 ? '' : 's'}`;
}

export function nameRows({ record, hash, rival }: VerifiedName): [string, string][] {
  return [
    ['name', record.label],
    ['address', contentOf(record)],
    ['key', record.key],
    ['seq', String(record.seq)],
    ['until', `${dateOf(record.not_after)}, ${expiryOf(record)}`],
    ['record', hash],
    ...(rival === undefined
      ? []
      : [['forked', `${contentOf(rival.record)}, record ${rival.hash}`] as [string, string]]),
  ];
}

export function recordJson({ record, signed, hash }: VerifiedRecord): Record<string, unknown> {
  return {
    name: record.label,
    key: record.key,
    address: record.value ?? null,
    seq: record.seq,
    not_after: record.not_after,
    ttl_s: record.ttl_s,
    previous: record.previous ?? null,
    moved_to: record.moved_to ?? null,
    hash,
    ...signed,
  };
}

export function nameJson(name: VerifiedName): Record<string, unknown> {
  const { rival } = name;
  return {
    ...recordJson(name),
    conflict: rival !== undefined,
    ...(rival !== undefined && { rival: recordJson(rival) }),
  };
}
