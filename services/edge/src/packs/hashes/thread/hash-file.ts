/**
 * Hashes of a file, from its sidecar or from its bytes. Runs in threads only.
 *
 * Contract: the result belongs to the file behind the descriptor as it was during the call: a file that changes meanwhile is
 * refused. A sidecar is written to a temporary file and renamed; it is not synced, because a torn one is detected.
 * Bound: 1 MiB of the file in memory, and its values. The thread rests for a quarter of the time in which it hashes, so that
 * requests get the disk and the core.
 */
/* oxlint-disable ron/no-blocking-calls -- this is a thread */
import { closeSync, constants, fstatSync, openSync, readSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { RonError, sched, sleep } from '@ron/kernel/core';
import { BLAKE3_BYTES, GROUP_BYTES } from '@ron/simd';
import { groupCount, treeParts, type TreeParts } from '../group-tree.ts';
import { groupLength, groupValue } from '../group-values.ts';
import {
  decodeSidecar,
  encodeSidecar,
  sidecarBytes,
  type Checked,
  type FileStamp,
  type SidecarContent,
} from '../sidecar.ts';

const READ_BYTES = 1024 * 1024;
const REST_SHARE = 0.25;
/** Shorter rests are added up. */
const REST_MS_MIN = 2;
/** The thread is ended when its caller aborts. */
const NEVER_ABORTED = new AbortController().signal;

export interface FileInThread extends Disposable {
  readonly path: string;
  readonly fd: number;
  readonly stamp: FileStamp;
  /** Device and inode, as `File.identity` of the log package writes them. */
  readonly identity: string;
}

/** Opens a regular file, without waiting for the writer of a pipe. */
export function openInThread(path: string): FileInThread {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const stats = fstatSync(fd);
    if (!stats.isFile()) throw new RonError('validation', 'it is not a regular file');
    const identity = `${stats.dev} ${stats.ino}`;
    return { path, fd, stamp: stampOf(fd), identity, [Symbol.dispose]: () => closeSync(fd) };
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

function stampOf(fd: number): FileStamp {
  const { ino, size, mtimeNs } = fstatSync(fd, { bigint: true });
  return { inode: ino, size: Number(size), mtime_ns: mtimeNs };
}

/** Throws `validation` if the file was written to since it was opened. */
export function requireUnchanged({ fd, stamp }: FileInThread): void {
  const now = stampOf(fd);
  if (now.size !== stamp.size || now.mtime_ns !== stamp.mtime_ns) {
    throw new RonError(
      'validation',
      'the file was changed while it was verified: write it under another name, then rename it',
    );
  }
}

/** Fills `into` from `position` on. Throws if the file is shorter. */
export function readFully(fd: number, into: Uint8Array, position: number): void {
  for (let filled = 0; filled < into.length;) {
    const count = readSync(fd, into, filled, into.length - filled, position + filled);
    if (count === 0) throw new RonError('validation', 'the file ends early: it was truncated while it was read');
    filled += count;
  }
}

/** The hashes in the sidecar; undefined if it is missing, damaged or for another file. */
export function readSidecar(path: string | undefined, stamp: FileStamp, checked: Checked): SidecarContent | undefined {
  if (path === undefined) return undefined;
  try {
    using file = openInThread(path);
    // A file of another size is not read at all.
    if (file.stamp.size !== sidecarBytes(stamp.size)) return undefined;
    const bytes = Buffer.alloc(file.stamp.size);
    readFully(file.fd, bytes, 0);
    return decodeSidecar(bytes, stamp, checked);
  } catch {
    return undefined;
  }
}

/**
 * Writes the sidecar to a new file: a link or a pipe with the temporary name is removed, and neither followed nor opened. The
 * error if that failed: the pack is usable without it, but the next start reads it in full.
 */
export function writeSidecar(path: string, stamp: FileStamp, content: SidecarContent): string | undefined {
  const temporary = `${path}.tmp`;
  try {
    rmSync(temporary, { force: true });
    writeFileSync(temporary, encodeSidecar(stamp, content), { mode: 0o600, flag: 'wx' });
    renameSync(temporary, path);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

/** Hashes all groups. */
export async function hashFile(file: FileInThread): Promise<TreeParts> {
  const { size } = file.stamp;
  // Shared memory reaches the main thread without a copy.
  const values = new Uint8Array(new SharedArrayBuffer(groupCount(size) * BLAKE3_BYTES));
  const buffer = Buffer.allocUnsafeSlow(Math.min(READ_BYTES, Math.max(size, 1)));
  const pace = new Pace();
  for (let start = 0; start < size; start += READ_BYTES) {
    const piece = buffer.subarray(0, Math.min(READ_BYTES, size - start));
    readFully(file.fd, piece, start);
    for (let at = 0; at < piece.length; at += GROUP_BYTES) {
      const group = (start + at) / GROUP_BYTES;
      const bytes = piece.subarray(at, at + groupLength(size, group));
      values.set(groupValue(bytes, group, size), group * BLAKE3_BYTES);
    }
    await pace.rest();
  }
  return treeParts(size, values);
}

/** Interrupts a long computation by rests. */
export class Pace {
  #since_ms = sched.now_ms();

  async rest(): Promise<void> {
    const rest_ms = (sched.now_ms() - this.#since_ms) * REST_SHARE;
    if (rest_ms < REST_MS_MIN) return;
    await sleep(rest_ms, NEVER_ABORTED);
    this.#since_ms = sched.now_ms();
  }
}
