/**
 * The header of a store: its identity, and its data key in one or two key boxes (sealed/sealer.ts).
 *
 * Contract: a box is opened by one key or passphrase only. To change it, add a box for the new one, switch, and drop the
 * other: a crash between these steps leaves a store that opens with at least one of them.
 */
import type { KeyObject } from 'node:crypto';
import { isRonError, RonError, sched } from '@ron/kernel';
import { newKeyBox, newMaster, openKeyBox, type Unlock } from '../sealed/sealer.ts';

const ID_BYTES = 16;
export const BOXES_MAX = 2;

export interface StoreHeader {
  readonly format: 1;
  readonly id: string;
  readonly boxes_b64: readonly string[];
}

export interface OpenedHeader {
  readonly header: StoreHeader;
  readonly master: KeyObject;
}

const contextOf = (id: string): Uint8Array => Buffer.from(`ron-store/v1\n${id}`);

export async function newHeader(unlock: Unlock, signal: AbortSignal): Promise<OpenedHeader> {
  const id = Buffer.from(sched.randomBytes(ID_BYTES)).toString('hex');
  const master = newMaster();
  return { header: await withBox({ format: 1, id, boxes_b64: [] }, unlock, master, signal), master };
}

export async function withBox(
  header: StoreHeader,
  unlock: Unlock,
  master: KeyObject,
  signal: AbortSignal,
): Promise<StoreHeader> {
  const box = await newKeyBox(unlock, contextOf(header.id), master, signal);
  return { ...header, boxes_b64: [...header.boxes_b64, Buffer.from(box).toString('base64')] };
}

/** Throws `not_ready` if no box opens. */
export async function openHeader(
  path: string,
  header: StoreHeader,
  unlock: Unlock,
  signal: AbortSignal,
): Promise<OpenedHeader> {
  let why = 'the key or passphrase is wrong, or the file is damaged';
  for (const box_b64 of header.boxes_b64.slice(0, BOXES_MAX)) {
    try {
      return { header, master: await openBox(header, box_b64, unlock, signal) };
    } catch (error) {
      if (!isRonError(error)) throw error;
      if (error.code === 'not_ready') why = error.message;
    }
  }
  throw new RonError('not_ready', `${path} cannot be opened: ${why}`, { op: 'sealed_file' });
}

/** The header with only those boxes that this secret opens. Throws `conflict` if there is none. */
export async function onlyBoxOf(header: StoreHeader, unlock: Unlock, signal: AbortSignal): Promise<StoreHeader> {
  const kept: string[] = [];
  for (const box_b64 of header.boxes_b64) {
    const master = await openBox(header, box_b64, unlock, signal).catch(() => undefined);
    signal.throwIfAborted();
    if (master !== undefined) kept.push(box_b64);
  }
  if (kept.length === 0)
    throw new RonError('conflict', 'no key box opens with this key or passphrase: none was dropped');
  return { ...header, boxes_b64: kept.slice(-1) };
}

export async function opensWith(header: StoreHeader, unlock: Unlock, signal: AbortSignal): Promise<boolean> {
  for (const box_b64 of header.boxes_b64) {
    const master = await openBox(header, box_b64, unlock, signal).catch(() => undefined);
    signal.throwIfAborted();
    if (master !== undefined) return true;
  }
  return false;
}

async function openBox({ id }: StoreHeader, box_b64: string, unlock: Unlock, signal: AbortSignal): Promise<KeyObject> {
  return await openKeyBox(unlock, contextOf(id), Buffer.from(box_b64, 'base64'), signal);
}

export function parseHeader(path: string, bytes: Uint8Array): StoreHeader {
  try {
    const header = JSON.parse(Buffer.from(bytes).toString()) as StoreHeader;
    if (header.format === 1 && typeof header.id === 'string' && Array.isArray(header.boxes_b64)) return header;
  } catch {
    // Reported below.
  }
  throw new RonError('not_ready', `${path} is damaged, or another program made it`, { op: 'sealed_file' });
}
