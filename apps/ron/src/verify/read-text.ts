/** Reads a small text file that the user named. */
import { readFile } from 'node:fs/promises';
import { CliError, systemCode } from '../exits.ts';

export async function readText(path: string, bytes_max: number): Promise<string> {
  let bytes: Buffer;
  try {
    bytes = await readFile(path);
  } catch (error) {
    throw new CliError('no_input', `cannot read ${path} (${systemCode(error) ?? 'unknown'})`);
  }
  if (bytes.length > bytes_max) throw new CliError('data', `${path} has more than ${bytes_max} bytes`);
  return bytes.toString('utf8');
}
