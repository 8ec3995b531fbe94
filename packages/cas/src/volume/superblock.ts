/**
 * The superblock of a volume: the file `DIR/superblock`, which says which volume a directory holds.
 *
 *     {"format":1,"id":"0f8f…","epoch":7,"former":"/mnt/a"}
 *     crc32 1a2b3c4d
 *
 * Contract: the id never changes; the epoch grows by one at each writable open. A file that does not check is an error:
 * it is never replaced by a new identity. The file is written whole, so a crash leaves the old one or the new one.
 * Bound: `BYTES_MAX`. Overflow: a longer file is refused. Cancellation: the deadline of the file system.
 */
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { blake3 } from '@napi-rs/blake-hash';
import { RonError, sched } from '@ron/kernel';
import { readWhole, writeWhole, type FileSystem } from '@ron/log';

export interface Superblock {
  /** A UUID, in lower case. */
  readonly id: string;
  readonly epoch: number;
  /** The name under which the previous version knew the volume. */
  readonly former?: string;
}

const FORMAT = 1;
const BYTES_MAX = 64 * 1024;
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const UUID_BYTES = 16;
const RANDOM_VERSION = 0x40;
const DERIVED_VERSION = 0x80;

export const isVolumeId = (text: string): boolean => UUID.test(text);

export const newVolumeId = (): string => formatVolumeId(versioned(sched.randomBytes(UUID_BYTES), RANDOM_VERSION));

/**
 * The id of a volume that the previous version knew by a name. It is derived from the name, so rosters and stripes that
 * use the name can be translated while the volume itself is away.
 */
export function legacyVolumeId(name: string): string {
  const hash = blake3(Buffer.from(`volume: ${name}`, 'utf8')).subarray(0, UUID_BYTES);
  return formatVolumeId(versioned(Uint8Array.from(hash), DERIVED_VERSION));
}

/** The 16 bytes of an id. */
export function volumeIdBytes(id: string): Buffer {
  if (!isVolumeId(id)) throw new RangeError(`${id} is not a volume id`);
  return Buffer.from(id.replaceAll('-', ''), 'hex');
}

export function formatVolumeId(bytes: Uint8Array): string {
  const hex = Buffer.from(bytes).toString('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

function versioned(bytes: Uint8Array, version: number): Uint8Array {
  bytes[6] = (bytes[6]! & 0x0f) | version;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  return bytes;
}

export function encodeSuperblock({ id, epoch, former }: Superblock): Buffer {
  const body = JSON.stringify({ format: FORMAT, id, epoch, ...(former !== undefined && { former }) });
  return Buffer.from(`${body}\ncrc32 ${checksum(body)}\n`, 'utf8');
}

/** Undefined when the bytes do not check, or are of a later version. */
export function decodeSuperblock(bytes: Uint8Array): Superblock | undefined {
  const [body = '', check, end] = Buffer.from(bytes).toString('utf8').split('\n');
  if (check !== `crc32 ${checksum(body)}` || end !== '') return undefined;
  const { format, id, epoch, former } = parsed(body);
  if (format !== FORMAT || typeof id !== 'string' || !isVolumeId(id)) return undefined;
  if (!Number.isSafeInteger(epoch) || (epoch as number) < 0) return undefined;
  return { id, epoch: epoch as number, ...(typeof former === 'string' && { former }) };
}

function parsed(body: string): Record<string, unknown> {
  try {
    return Object(JSON.parse(body)) as Record<string, unknown>;
  } catch {
    return {};
  }
}

const checksum = (body: string): string => crc32(body).toString(16).padStart(8, '0');
const pathIn = (dir: string): string => join(dir, 'superblock');

/** Undefined when there is none. Throws `not_ready` when it is damaged. */
export async function readSuperblock(fs: FileSystem, dir: string): Promise<Superblock | undefined> {
  const bytes = await readWhole(fs, pathIn(dir), BYTES_MAX);
  if (bytes === undefined) return undefined;
  const superblock = decodeSuperblock(bytes);
  if (superblock !== undefined) return superblock;
  const repair = 'restore it from a backup, or delete it to have it rebuilt from the log';
  throw new RonError('not_ready', `${pathIn(dir)} is damaged or of a later version: ${repair}`);
}

/** Durable when it resolves. */
export function writeSuperblock(fs: FileSystem, dir: string, superblock: Superblock): Promise<void> {
  return writeWhole(fs, pathIn(dir), encodeSuperblock(superblock));
}
