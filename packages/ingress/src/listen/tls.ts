/**
 * Reads and checks certificates, and reloads them without a restart.
 *
 * Contract: the key is a secret file: one that other users can access is refused. A certificate and key that do not match
 * are refused before they are used. A failed reload keeps the old pair and reports the reason. Node's TLS modules are
 * loaded only if TLS is on: they would be a sixth of the import time.
 */
import { readFile } from 'node:fs/promises';
import type { Server as HttpServer, ServerOptions } from 'node:http';
import type { Server } from 'node:https';
import { RonError } from '@ron/kernel';
import { readSecretBytes } from '@ron/log/secret-file';
import type { TlsFiles } from '../limits.ts';

const MIN_VERSION = 'TLSv1.2' as const;

export interface TlsMaterial {
  readonly cert: Buffer;
  readonly key: Buffer;
}

export async function readTls(files: TlsFiles): Promise<TlsMaterial> {
  try {
    const [cert, key] = await Promise.all([readFile(files.cert_file), readSecretBytes(files.key_file)]);
    if (key === undefined) throw new RonError('not_ready', `${files.key_file} does not exist`);
    // Throws if the key does not match the certificate.
    process.getBuiltinModule('node:tls').createSecureContext({ cert, key });
    return { cert, key };
  } catch (error) {
    throw new RonError(
      'internal',
      `TLS: ${files.cert_file} and ${files.key_file} cannot be used: ${(error as Error).message}`,
      { cause: error },
    );
  }
}

/** A server that speaks TLS 1.2 or newer only. The time limit of the handshake is that of the headers. */
export function createTlsServer(options: ServerOptions, tls: TlsMaterial): HttpServer {
  const handshakeTimeout = options.headersTimeout;
  const secured = { ...options, ...tls, minVersion: MIN_VERSION, ...(handshakeTimeout && { handshakeTimeout }) };
  return process.getBuiltinModule('node:https').createServer(secured);
}

/** New connections use the new pair; open ones keep theirs. */
export async function reloadTls(server: Server, files: TlsFiles): Promise<void> {
  server.setSecureContext({ ...(await readTls(files)), minVersion: MIN_VERSION });
}
