/** Uploads in a temporary directory of each test, with helpers for bodies and time. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { installSched, realSched } from '@ron/kernel';
import { formatAddress, type Address } from '@ron/proto';
import { ObjectStore } from '../src/objects/object-store.ts';
import { Uploads, type UploadsInit } from '../src/uploads/uploads.ts';
import { LocalVolume } from '../src/volume/local-volume.ts';

export const { signal } = new AbortController();
export const CHUNK = 64 * 1024;
export let dir: string;
export let volume: LocalVolume | undefined;
let uploads: Uploads | undefined;

beforeEach(() => void (dir = mkdtempSync(join(tmpdir(), 'ron-uploads-'))));
afterEach(async () => {
  await close();
  rmSync(dir, { recursive: true });
});

export async function close(): Promise<void> {
  await uploads?.close();
  await volume?.close();
  uploads = undefined;
  volume = undefined;
}

export interface Opened {
  store: ObjectStore;
  uploads: Uploads;
}

/** Opens the directory, after closing it if it was open: a restart. */
export async function open(init: Partial<UploadsInit> = {}): Promise<Opened> {
  await close();
  volume = await LocalVolume.open({ dir, signal, segment_bytes: 1 << 20 });
  const store = new ObjectStore({ volume, cache_bytes: 0, object_bytes_max: 1 << 30 });
  uploads = await Uploads.open({ store, dir, ...init });
  return { store, uploads };
}

export const content = (size: number, seed = 1): Buffer => {
  const bytes = Buffer.allocUnsafe(size);
  for (let at = 0, x = seed; at < size; at++) bytes[at] = (x = Math.imul(x, 1_103_515_245) + 12_345) >>> 16;
  return bytes;
};
export const addressOf = (bytes: Buffer): Address => formatAddress(blake3(bytes));

/** A body in pieces, which ends with an error if one is given. */
export async function* bodyOf(bytes: Buffer, end?: Error): AsyncGenerator<Uint8Array, void, void> {
  for (let at = 0; at < bytes.length; at += 30_000) yield bytes.subarray(at, at + 30_000);
  if (end !== undefined) throw end;
}

export async function get(store: ObjectStore, address: Address): Promise<Buffer> {
  const object = await store.open(address, signal);
  assert.ok(object, `${address} is stored`);
  const parts: Uint8Array[] = [];
  for await (const part of object.read(0, object.size, signal)) parts.push(Buffer.concat(part));
  return Buffer.concat(parts);
}

/** Runs `work` with a clock that is `ahead_ms` ahead. */
export async function later<T>(ahead_ms: number, work: () => Promise<T>): Promise<T> {
  const previous = installSched({ ...realSched, wall_ms: () => Date.now() + ahead_ms });
  try {
    return await work();
  } finally {
    installSched(previous);
  }
}
