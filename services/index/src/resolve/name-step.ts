/**
 * The first step of a lookup: from a name to an address.
 *
 * Contract: the current valid record decides: the best of database and DHT. A name published here is read from the DHT, too,
 * as another node with the same key may have published a newer record; if peers are slow, it is answered from the database
 * after `CONFIRM_SHARE` of the budget, incomplete. `moved_to` is followed at most `NAME_MOVES_MAX` times. Rejects with
 * `not_found` and a reason for a name that is unknown, removed, expired or moved too often; with the refusal of the DHT if
 * nothing is known. An unreachable DHT leaves a record of the database valid, but incomplete.
 */
import { sched, type Deadline } from '@ron/kernel';
import { formatTarget, NAME_MOVES_MAX, type Address, type ResolvedNameDto, type Target } from '@ron/proto';
import { decodeNameRecord, type NameRecord } from '@ron/proto/names';
import type { Dht } from '../dht/dht.ts';
import type { Names } from '../publish/names.ts';
import type { IndexStore, StoredName } from '../store/index-store.ts';
import { localRead } from './local-read.ts';
import type { Lookup } from './lookup.ts';
import { missing, nothingFound } from './refusals.ts';

const CONFIRM_SHARE = 0.25;

export interface NameStepInit {
  readonly store: Pick<IndexStore, 'name'>;
  readonly names: Pick<Names, 'keyFor' | 'adopt'>;
  /** Undefined in `standalone`. */
  readonly dht: Pick<Dht, 'findName'> | undefined;
}

export interface NamedAddress {
  readonly address: Address;
  readonly name: ResolvedNameDto;
  readonly source: 'db' | 'dht';
  readonly complete: boolean;
  /** The shortest time for which a record of the way may be cached. */
  readonly ttl_ms: number;
  /** When the first record of the way expires, in Unix milliseconds. */
  readonly not_after_ms: number;
}

type NameTarget = Extract<Target, { kind: 'name' }>;

interface CurrentName {
  readonly name: StoredName;
  readonly source: 'db' | 'dht';
  readonly complete: boolean;
}

interface Deadlines {
  readonly deadline: Deadline;
  /** Of the DHT phase. */
  readonly network: Deadline;
}

export async function resolveName(
  init: NameStepInit,
  lookup: Lookup,
  { label, key: given }: NameTarget,
  within: Deadlines,
): Promise<NamedAddress> {
  const first = given ?? init.names.keyFor(label);
  if (first === undefined) throw missing('untrusted_name');
  let key = first;
  let ttl_ms = Infinity;
  let not_after_ms = Infinity;
  let complete = true;
  for (let moves = 0; moves <= NAME_MOVES_MAX; moves += 1) {
    const current = await currentName(init, lookup, { label, key }, within);
    const { name, source } = current;
    complete &&= current.complete;
    const record = decoded(name);
    const left_ms = record.not_after * 1000 - sched.wall_ms();
    if (left_ms <= 0) throw missing('expired', complete);
    ttl_ms = Math.min(ttl_ms, record.ttl_s * 1000, left_ms);
    not_after_ms = Math.min(not_after_ms, record.not_after * 1000);
    if (record.moved_to !== undefined) {
      key = record.moved_to;
      continue;
    }
    if (record.value === undefined) throw missing('removed', complete);
    const { seq, not_after } = record;
    const dto = { key, label, seq, not_after, conflict: name.rival !== undefined };
    return { address: record.value, name: dto, source, complete, ttl_ms, not_after_ms };
  }
  throw missing('moved_too_often');
}

async function currentName(
  { store, names, dht }: NameStepInit,
  lookup: Lookup,
  { label, key }: { readonly label: string; readonly key: string },
  { deadline, network }: Deadlines,
): Promise<CurrentName> {
  // Before the read: a change that is committed later outdates this lookup.
  lookup.stamp.add(formatTarget({ kind: 'name', label, key }));
  const local = await localRead(lookup, deadline, dht !== undefined, () => store.name(key, label));
  const stored = local.value;
  if (dht === undefined) {
    if (stored === undefined) throw missing('unknown_name');
    return { name: stored, source: 'db', complete: true };
  }
  using confirm = isOwnUsual(stored, lookup) ? network.child('confirm', lookup.budget_ms * CONFIRM_SHARE) : undefined;
  const { signal: reading } = confirm ?? network;
  const found = await dht.findName(key, label, { signal: reading, trace: lookup.trace });
  const complete = found.complete && local.complete;
  const adopted =
    found.values.length === 0
      ? undefined
      : await deadline.run((signal) => names.adopt(key, label, found.values, signal));
  if (adopted !== undefined) return { name: adopted, source: 'dht', complete };
  if (stored !== undefined) return { name: stored, source: 'db', complete };
  throw nothingFound(found.empty ?? 'none_has_it', complete, 'unknown_name', local.failure);
}

function isOwnUsual(stored: StoredName | undefined, { mode }: Lookup): boolean {
  return stored?.isOwn === true && mode === 'usual';
}

function decoded(name: StoredName): NameRecord {
  const result = decodeNameRecord(name.record);
  // Records are verified before they are stored.
  if (!result.ok) throw missing('unknown_name', false);
  return result.record;
}
