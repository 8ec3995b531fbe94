/**
 * A PMTiles pack on a server that is not trusted, as a `Source` of the library `pmtiles`.
 *
 *     const archive = new PMTiles(packSource('https://edge.example/edge/assets/pack/planet.pmtiles', address));
 *     const protocol = new Protocol();
 *     protocol.add(archive);
 *     maplibregl.addProtocol('pmtiles', protocol.tile);   // in the style: pmtiles://{archive.source.getKey()}
 *
 * Contract: `getBytes` returns only bytes that are proven against the address. Header, directories and tiles are such bytes,
 * so the place of a tile and its absence are proven too. A false answer rejects with `integrity`, is reported to
 * `onMismatch`, and is not kept.
 * Bound: `groups_max` verified groups of 64 KiB in memory, least recently used ones are dropped; `READ_BYTES_MAX` for one
 * read. Concurrent reads of the same group share one request.
 * Cancellation: a read ends with its signal. Its request goes on for the other readers, within `deadline_ms`.
 */
import { isRonError, onAbort, RonError, sched } from '@ron/kernel/core';
import type { Address } from '@ron/proto';
import { GROUP_BYTES } from './object-hasher.ts';
import { Transport, type TransportInit } from './transport.ts';
import { slice } from './verified-read.ts';

const GROUPS_MAX = 128;
/** Larger than any directory or tile that edge serves. */
const READ_BYTES_MAX = 16 * 1024 * 1024;

export interface PackSourceInit extends Omit<TransportInit, 'url'> {
  /** Default 128: 8 MiB. */
  groups_max?: number;
  /** Called with the number of bytes received and verified so far. */
  onVerified?: (verified_bytes: number) => void;
  onMismatch?: (error: RonError) => void;
}

/** As `Source` of `pmtiles`. */
export interface PackSource {
  /** The URL of the pack. */
  getKey(): string;
  /** The bytes from `offset` on; fewer than `length` at the end of the pack. */
  getBytes(offset: number, length: number, signal?: AbortSignal): Promise<{ data: ArrayBuffer }>;
}

export function packSource(url: string | URL, address: Address, init: PackSourceInit = {}): PackSource {
  const groups = new ProvenGroups(new URL(url), address, init);
  return {
    getKey: () => String(url),
    getBytes: async (offset, length, signal) => ({ data: await groups.read(offset, length, signal) }),
  };
}

class ProvenGroups {
  readonly #transport: Transport;
  readonly #path: string;
  readonly #address: Address;
  readonly #init: PackSourceInit;
  readonly #groups_max: number;
  /** By index, least recently used first. */
  readonly #groups = new Map<number, Promise<Uint8Array>>();
  #verified_bytes = 0;

  constructor(url: URL, address: Address, init: PackSourceInit) {
    this.#transport = new Transport({ ...init, url: new URL('.', url) });
    this.#path = url.pathname.slice(url.pathname.lastIndexOf('/') + 1);
    this.#address = address;
    this.#init = init;
    this.#groups_max = init.groups_max ?? GROUPS_MAX;
  }

  async read(offset: number, length: number, signal: AbortSignal | undefined): Promise<ArrayBuffer> {
    if (!Number.isSafeInteger(offset) || offset < 0 || !(length >= 0 && length <= READ_BYTES_MAX)) {
      throw new RonError('validation', `a read of ${length} bytes at ${offset} exceeds the limits of a pack`);
    }
    signal?.throwIfAborted();
    const first = Math.floor(offset / GROUP_BYTES);
    const last = Math.floor((offset + Math.max(length, 1) - 1) / GROUP_BYTES);
    const groups = await endedBy(signal, Promise.all(this.#groupsOf(first, last)));
    return cut(groups, offset - first * GROUP_BYTES, length);
  }

  /** The groups `first` to `last`; adjacent missing ones are requested together. */
  #groupsOf(first: number, last: number): Promise<Uint8Array>[] {
    for (let index = first; index <= last; index++) {
      if (this.#groups.has(index)) continue;
      let end = index + 1;
      while (end <= last && !this.#groups.has(end)) end += 1;
      this.#request(index, end);
    }
    const groups: Promise<Uint8Array>[] = [];
    for (let index = first; index <= last; index++) {
      const group = this.#groups.get(index)!;
      this.#groups.delete(index);
      this.#groups.set(index, group);
      groups.push(group);
    }
    for (const oldest of this.#groups.keys()) {
      if (this.#groups.size <= this.#groups_max) break;
      this.#groups.delete(oldest);
    }
    return groups;
  }

  /** Requests the groups `first` to `end`, exclusive. */
  #request(first: number, end: number): void {
    const offset = first * GROUP_BYTES;
    const length = (end - first) * GROUP_BYTES;
    const received = this.#transport.call('get', (signal) => this.#receive(offset, length, signal));
    for (let index = first; index < end; index++) {
      const start = (index - first) * GROUP_BYTES;
      const group = received.then((bytes) => bytes.subarray(start, start + GROUP_BYTES));
      this.#groups.set(index, group);
      // Readers get the rejection from `group`; the next read requests it again.
      group.catch(() => this.#groups.get(index) === group && this.#groups.delete(index));
    }
    received.catch((error: unknown) => {
      if (isRonError(error, 'integrity')) this.#init.onMismatch?.(error);
    });
  }

  async #receive(offset: number, length: number, signal: AbortSignal): Promise<Uint8Array> {
    const bytes = new Uint8Array(length);
    let filled = 0;
    const init = { path: this.#path, offset, length, signal };
    for await (const piece of slice(this.#transport, this.#address, init)) {
      bytes.set(piece, filled);
      filled += piece.length;
    }
    this.#verified_bytes += filled;
    this.#init.onVerified?.(this.#verified_bytes);
    return bytes.subarray(0, filled);
  }
}

async function endedBy<T>(signal: AbortSignal | undefined, result: Promise<T>): Promise<T> {
  if (signal === undefined) return await result;
  const aborted = sched.park<never>('client.pack');
  using _ = onAbort(signal, aborted.fail);
  return await Promise.race([result, aborted.promise]);
}

/** Copies `length` bytes from `offset` of consecutive groups; fewer if the groups end before. */
function cut(groups: readonly Uint8Array[], offset: number, length: number): ArrayBuffer {
  const available = groups.reduce((sum, group) => sum + group.length, 0);
  const bytes = new Uint8Array(Math.max(0, Math.min(length, available - offset)));
  let at = -offset;
  for (const group of groups) {
    const from = Math.max(0, -at);
    const to = Math.min(group.length, bytes.length - at);
    if (from < to) bytes.set(group.subarray(from, to), at + from);
    at += group.length;
  }
  return bytes.buffer;
}
