/**
 * A client of index: addresses and names to providers, from a service whose records need not be believed.
 *
 * Contract: every name record that a method returns is verified, and so is the address that `resolve` states for a name. A
 * bare label names the key that the node trusts for it; a caller that does not trust the node gives the key.
 * Moves of a name to another key are followed by the client itself. Only idempotent calls are made, so all may be retried.
 * Bound: `NAME_MOVES_MAX` moves; responses as in JsonCalls. Cancellation: by the signal of each call and of the client.
 */
import { RonError } from '@ron/kernel/core';
import {
  addressToCid,
  formatName,
  formatTarget,
  isAddress,
  NAME_MOVES_MAX,
  type Address,
  type AnnouncedDto,
  type AnnounceDto,
  type DhtStatusDto,
  type NameDto,
  type NamePageDto,
  type ProvidersDto,
  type ResolveDto,
  type ResolvedNameDto,
  type SignedNameDto,
  type Target,
  type Task,
  type TrustDto,
  type TrustListDto,
} from '@ron/proto';
import { JsonCalls } from './json-calls.ts';
import { queryOf } from './query.ts';
import type { VerifiedName, WantedName } from './signed-name.ts';
import type { CallOptions } from './storage-client.ts';
import type { TransportInit } from './transport.ts';

export type { VerifiedName, VerifiedRecord, WantedName } from './signed-name.ts';

export interface ResolveOptions extends CallOptions {
  /** Bypasses the cache of the node. Default false. */
  readonly fresh?: boolean | undefined;
  /** Requests the explanation of the lookup. Default false. */
  readonly receipt?: boolean | undefined;
}

/** A provider as Delegated Routing V1 describes it. */
export interface RoutedPeer {
  readonly Schema: string;
  readonly ID: string;
  readonly Addrs?: readonly string[];
  readonly Protocols?: readonly string[];
}

const LIST_LIMIT = 100;

export class IndexClient {
  readonly #calls: JsonCalls;

  constructor(init: TransportInit) {
    this.#calls = new JsonCalls('', init);
  }

  get url(): string {
    return this.#calls.url;
  }

  /** The address and providers of a target. For a name, the signed record must give the same address. */
  async resolve(target: Target, init: ResolveOptions = {}): Promise<ResolveDto> {
    const found = await this.#resolveOnce(target, init);
    if (target.kind === 'address') return found;
    const name = await this.followed(target, init);
    if (name.record.value === found.address) return { ...found, name: verifiedFields(name) };
    // The name may have changed between the two answers.
    const again = await this.#resolveOnce(target, { ...init, fresh: true });
    if (name.record.value === again.address) return { ...again, name: verifiedFields(name) };
    throw lie(`the signed record of ${formatTarget(target)} gives another address`);
  }

  async providers(
    address: Address,
    init: CallOptions & { readonly limit?: number; readonly min_freshness_s?: number } = {},
  ): Promise<ProvidersDto> {
    const query = queryOf({ limit: init.limit, min_freshness: init.min_freshness_s });
    const found = await this.#get<ProvidersDto>('providers', `providers/${address}${query}`, init);
    if (found.address !== address || !Array.isArray(found.providers)) throw lie('the providers are of another object');
    return found;
  }

  /** Providers by Delegated Routing V1. */
  async routing(address: Address, init: CallOptions = {}): Promise<readonly RoutedPeer[]> {
    const path = `routing/v1/providers/${addressToCid(address)}`;
    const { Providers } = await this.#get<{ Providers?: readonly RoutedPeer[] | null }>('routing', path, init);
    return Providers ?? [];
  }

  /**
   * The current record of a name, which may remove or move it. Rejects with `not_found` if there is none, or if its life is
   * over; `expired: true` accepts such a record, which a publisher needs to continue from.
   */
  async name(
    wanted: WantedName,
    init: CallOptions & { readonly history?: boolean; readonly expired?: boolean } = {},
  ): Promise<VerifiedName> {
    const query = queryOf({ history: init.history === true ? 1 : undefined });
    const path = `names/${formatName(wanted.label, wanted.key)}${query}`;
    const { verifyName, requireLive } = await import('./signed-name.ts');
    const name = await verifyName(await this.#get<NameDto>('names', path, init), wanted);
    return init.expired === true ? name : requireLive(name);
  }

  /** As `name`, for the key that the name was moved to, if it was. */
  async followed(wanted: WantedName, init: CallOptions = {}): Promise<VerifiedName> {
    let name = await this.name(wanted, init);
    for (let moves = 0; name.record.moved_to !== undefined; moves++) {
      if (moves === NAME_MOVES_MAX) throw lie(`${wanted.label} was moved more than ${NAME_MOVES_MAX} times`);
      name = await this.name({ label: wanted.label, key: name.record.moved_to }, init);
    }
    return name;
  }

  /** The names that this node published, in the order of their labels. */
  async *names(init: CallOptions & { readonly prefix?: string } = {}): AsyncGenerator<VerifiedName, void, void> {
    const { verifyName } = await import('./signed-name.ts');
    for (let after: string | undefined; ;) {
      const query = queryOf({ prefix: init.prefix, after, limit: LIST_LIMIT });
      const page = await this.#get<NamePageDto>('names', `names${query}`, init);
      for (const dto of page.names) yield await verifyName(dto, { label: dto.label, key: dto.key });
      if (page.next === undefined) return;
      if (page.names.length === 0) throw lie('an empty page of names names a next page');
      after = page.next;
    }
  }

  /** Publishes a signed record. Rejects with `conflict` if it does not follow the current one: see `conflictOf`. */
  async putName(label: string, signed: SignedNameDto, init: CallOptions = {}): Promise<VerifiedName> {
    const { verifyName } = await import('./signed-name.ts');
    const stored = await this.#calls.put<NameDto>('names', `names/${label}`, signed, init.signal);
    if (stored?.record !== signed.record) throw lie('another record was stored than the one sent');
    return await verifyName(stored, { label });
  }

  async trust(init: CallOptions = {}): Promise<readonly TrustDto[]> {
    return (await this.#get<TrustListDto>('trust', 'trust', init)).trust;
  }

  /** The empty prefix is the node's own key. */
  async setTrust({ prefix, key }: TrustDto, init: CallOptions = {}): Promise<void> {
    await this.#calls.put('trust', `trust/${prefix}`, { key }, init.signal);
  }

  async removeTrust(prefix: string, init: CallOptions = {}): Promise<void> {
    await this.#calls.delete('trust', `trust/${prefix}`, init.signal);
  }

  /** A pinned target stays in the cache of the node. */
  async pin(target: Target, init: CallOptions = {}): Promise<void> {
    await this.#calls.run('pin', 'admin/pin', { key: formatTarget(target) }, init.signal);
  }

  async unpin(target: Target, init: CallOptions = {}): Promise<void> {
    await this.#calls.run('pin', 'admin/unpin', { key: formatTarget(target) }, init.signal);
  }

  async announce(objects: AnnounceDto, init: CallOptions = {}): Promise<AnnouncedDto> {
    return await this.#calls.post('announce', 'announce', objects, init.signal);
  }

  /** Empties the cache and requests the announcement of all objects. */
  async reindex(init: CallOptions = {}): Promise<Task<'reindex'>> {
    return await this.#calls.post('reindex', 'admin/reindex', undefined, init.signal);
  }

  async task(id: string, init: CallOptions = {}): Promise<Task<'reindex'>> {
    return await this.#get('task', `admin/tasks/${encodeURIComponent(id)}`, init);
  }

  async dhtStatus(init: CallOptions = {}): Promise<DhtStatusDto> {
    return await this.#get('dht', 'admin/dht', init);
  }

  async #resolveOnce(target: Target, init: ResolveOptions): Promise<ResolveDto> {
    const flag = (isSet: boolean | undefined): number | undefined => (isSet === true ? 1 : undefined);
    const key = formatTarget(target);
    const query = queryOf({ fresh: flag(init.fresh), receipt: flag(init.receipt) });
    const found = await this.#get<ResolveDto>('resolve', `resolve/${key}${query}`, init);
    const isWanted = found.key === key && isAddress(found.address) && Array.isArray(found.providers);
    if (!isWanted || (target.kind === 'address' && found.address !== target.address)) {
      throw lie(`the answer is not about ${key}`);
    }
    return found;
  }

  async #get<T>(op: string, path: string, init: CallOptions): Promise<T> {
    const answer = await this.#calls.get<T>(op, path, init.signal);
    if (answer === undefined) throw new RonError('integrity', 'the server sent an empty response', { op });
    return answer;
  }
}

/** The current record in a refusal of `putName`, verified; undefined if the error is another one. */
export async function conflictOf(error: unknown, wanted: WantedName): Promise<VerifiedName | undefined> {
  if (!(error instanceof RonError) || error.code !== 'conflict') return undefined;
  const current = error.details?.['current'];
  if (typeof current !== 'object' || current === null) return undefined;
  const { verifyName } = await import('./signed-name.ts');
  return await verifyName(current as NameDto, wanted);
}

const lie = (problem: string): RonError =>
  new RonError('integrity', `the index sent a wrong answer: ${problem}`, { op: 'index' });

/** The fields of the signed record, in place of those that index sent beside the address. */
function verifiedFields({ record, rival }: VerifiedName): ResolvedNameDto {
  const { key, label, seq, not_after } = record;
  return { key, label, seq, not_after, conflict: rival !== undefined };
}
