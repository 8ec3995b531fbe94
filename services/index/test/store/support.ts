/** Records and stores for the tests of the database. */
import { hash } from 'node:crypto';
import { formatAddress, type Address } from '@ron/proto';
import { blake3 } from '@ron/simd';
import type { LogChange, LogPosition, StoredRecord } from '../../src/store/index-store.ts';
import { SqliteStore, type Quotas, type SqliteStoreInit } from '../../src/store/sqlite-store.ts';

export const QUOTAS: Quotas = { providers_max: 1000, providers_per_subject: 100, names_seen: 10 };
/** The signers of the test; `newKeys` replaces them, so that tests can share a database. */
export let KEY = 'a'.repeat(64);
export let OTHER_KEY = 'b'.repeat(64);
let keys = 0;
export function newKeys(): void {
  keys += 1;
  const tail = keys.toString(16).padStart(63, '0');
  [KEY, OTHER_KEY] = [`a${tail}`, `b${tail}`];
}
export const NOW_MS = 1_800_000_000_000;
export const DAY_MS = 86_400_000;

export const digest = (text: string): Uint8Array<ArrayBuffer> => new Uint8Array(hash('sha256', text, 'buffer'));
export const addressOf = (text: string): Address => formatAddress(digest(text));

/** A record as the publisher would store it; its signature is not checked here. */
export function recordOf(label: string, seq: number, { key = KEY, salt = '' } = {}): StoredRecord {
  const record = new TextEncoder().encode(`${key} ${label} ${seq} ${salt}`);
  const signature = new Uint8Array(64).fill(seq % 256);
  return {
    key,
    label,
    seq,
    not_after: 1_900_000_000 + seq,
    record,
    signature,
    hash: blake3(record),
  };
}

export const position = (size: number): LogPosition => ({
  size,
  leaf: size === 0 ? undefined : digest(`leaf ${size}`),
});
export const published = (...args: Parameters<typeof recordOf>): LogChange => ({
  kind: 'name',
  record: recordOf(...args),
});

/** With a deadline that a busy machine does not reach. */
export function openStore(dir: string | undefined, init: Partial<SqliteStoreInit> = {}): Promise<SqliteStore> {
  return SqliteStore.open({ dir, quotas: () => QUOTAS, call_ms: 30_000, ...init });
}

/** The key of a provider record in the datastore of kad-dht. */
export function providerKeyOf(text: string, peer: string): string {
  return `/dht/provider/${base32(Buffer.concat([Buffer.from([0x12, 0x20]), digest(text)]))}/${peer}`;
}

function base32(bytes: Uint8Array): string {
  const bits = Array.from(bytes, (byte) => byte.toString(2).padStart(8, '0')).join('');
  const digits = bits.match(/.{1,5}/g) ?? [];
  return digits.map((digit) => 'abcdefghijklmnopqrstuvwxyz234567'[Number.parseInt(digit.padEnd(5, '0'), 2)]).join('');
}

/** Removes everything but the records of names, which belong to their keys. */
export async function empty(store: SqliteStore): Promise<void> {
  await store.resetLog();
  for (const { key } of await store.dhtQuery('/', { now_ms: 0, limit: 2000 })) await store.dhtDelete(key);
  const objects = await store.objects(undefined, 2000);
  await store.announce(
    's',
    [],
    objects.map(({ address }) => address),
    NOW_MS,
  );
}
