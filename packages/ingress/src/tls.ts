/**
 * Certificates: read, checked, and read again without a restart.
 *
 * Promise: a certificate and key that do not belong together are refused before they are used; a bad reload leaves the
 * old pair in force and says why.
 */
import { readFile } from 'node:fs/promises';
import type { Server } from 'node:https';
import { createSecureContext } from 'node:tls';
import { RonError } from '@ron/kernel';
import type { TlsFiles } from './limits.ts';

export interface TlsMaterial {
  readonly cert: Buffer;
  readonly key: Buffer;
}

export async function readTls(files: TlsFiles): Promise<TlsMaterial> {
  try {
    const [cert, key] = await Promise.all([readFile(files.cert_file), readFile(files.key_file)]);
    // Throws when the key does not fit the certificate.
    createSecureContext({ cert, key });
    return { cert, key };
  } catch (error) {
    throw new RonError(
      'internal',
      `TLS: ${files.cert_file} and ${files.key_file} cannot be used: ${(error as Error).message}`,
      { cause: error },
    );
  }
}

/** New connections use the new pair; open ones keep theirs. */
export async function reloadTls(server: Server, files: TlsFiles): Promise<void> {
  server.setSecureContext({ ...(await readTls(files)), minVersion: 'TLSv1.2' });
}
