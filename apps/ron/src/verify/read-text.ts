/**
 * Reads a small text file that the user named.
 *
 * Contract: `readUtf8` refuses bytes that are not UTF-8; `readText` replaces them.
 * Bound: `bytes_max`; no more is read of a longer file or of a device.
 */
import { open } from 'node:fs/promises';
import { CliError, systemCode } from '../exits.ts';

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export async function readText(path: string, bytes_max: number): Promise<string> {
  return (await readBytes(path, bytes_max)).toString('utf8');
}

export async function readUtf8(path: string, bytes_max: number): Promise<string> {
  const bytes = await readBytes(path, bytes_max);
  try {
    return UTF8.decode(bytes);
  } catch {
    throw new CliError('data', `${path} is not a text in UTF-8`);
  }
}

async function readBytes(path: string, bytes_max: number): Promise<Buffer> {
  const bytes = Buffer.alloc(bytes_max + 1);
  let length = 0;
  try {
    await using file = await open(path, 'r');
    for (let bytesRead = -1; bytesRead !== 0 && length <= bytes_max; length += bytesRead) {
      ({ bytesRead } = await file.read(bytes, length));
    }
  } catch (error) {
    throw new CliError('no_input', `cannot read ${path} (${systemCode(error) ?? 'unknown'})`);
  }
  if (length > bytes_max) throw new CliError('data', `${path} has more than ${bytes_max} bytes`);
  return bytes.subarray(0, length);
}
