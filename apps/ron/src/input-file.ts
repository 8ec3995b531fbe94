/** Files that a command reads. Errors name the file and the reason. */
import { createReadStream } from 'node:fs';
import { open, stat, type FileHandle } from 'node:fs/promises';
import { ObjectHasher, type OnProgress } from '@ron/client';
import type { Address } from '@ron/proto';
import { CliError, systemCode } from './exits.ts';

export async function openInput(path: string): Promise<FileHandle> {
  return await open(path, 'r').catch((error: unknown) => unreadable(path, error));
}

/** The address of the bytes of a file. */
export async function addressOfFile(path: string, signal: AbortSignal, onProgress?: OnProgress): Promise<Address> {
  return (await hashFile(path, signal, onProgress)).b3;
}

/** The address of the bytes of a file, and their number. A pipe has no size of its own. */
export async function hashFile(
  path: string,
  signal: AbortSignal,
  onProgress?: OnProgress,
): Promise<{ readonly b3: Address; readonly bytes: number }> {
  const hasher = new ObjectHasher();
  try {
    const { size } = await stat(path);
    for await (const chunk of createReadStream(path, { signal })) {
      hasher.update(chunk as Uint8Array);
      onProgress?.({ done_bytes: hasher.size, total_bytes: size });
    }
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    unreadable(path, error);
  }
  return { b3: hasher.finish(), bytes: hasher.size };
}

function unreadable(path: string, error: unknown): never {
  const why = systemCode(error) === 'ENOENT' ? 'no such file' : `cannot be read (${systemCode(error)})`;
  throw new CliError('no_input', `${path}: ${why}`);
}
