/**
 * Reads a small text file that the user named.
 *
 * Bound: `bytes_max`; no more is read of a longer file or of a device.
 */
import { open } from 'node:fs/promises';
import { CliError, systemCode } from '../exits.ts';

export async function readText(path: string, bytes_max: number): Promise<string> {
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
  return bytes.toString('utf8', 0, length);
}
