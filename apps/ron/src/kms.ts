/**
 * Access to kms for commands.
 *
 * Contract: an answer is believed only if a capability was sent, which happens at the socket of the own node, another named
 * socket or a pinned key only. Kms answers nothing without one, so such an answer is of another process at its address.
 */
import { createReadStream } from 'node:fs';
import { KmsClient, ObjectHasher, type Fetch, type TransportInit } from '@ron/client';
import { RonError } from '@ron/kernel/core';
import type { KeyInfo } from '@ron/proto';
import { CliError, systemCode } from './exits.ts';
import type { Io } from './io.ts';
import type { ResolvedService, ConnectionValues } from './resolve-service.ts';
import { withClient } from './service-client.ts';

export function withKms<T>(
  values: ConnectionValues,
  io: Io,
  signal: AbortSignal,
  work: (client: KmsClient, resolved: ResolvedService) => Promise<T>,
): Promise<T> {
  const open = (init: TransportInit): KmsClient =>
    new KmsClient(init.authorize === undefined ? { ...init, fetch: disbelieving(init) } : init);
  return withClient('kms', open, values, io, signal, work);
}

function disbelieving({ fetch = globalThis.fetch, url, shown_url = String(url) }: TransportInit): Fetch {
  return async (place, init) => {
    const answer = await fetch(place, init);
    if (answer.status >= 400) return answer;
    await answer.body?.cancel();
    throw new RonError(
      'forbidden',
      `${shown_url} answered without a capability: it is not kms, and its answer is ignored`,
    );
  };
}

/** The BLAKE3 hash of a file, in hex. Kms signs this hash. */
export async function hashOfFile(path: string, signal: AbortSignal): Promise<string> {
  const hasher = new ObjectHasher();
  try {
    for await (const chunk of createReadStream(path, { signal })) hasher.update(chunk as Uint8Array);
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    const why = systemCode(error) === 'ENOENT' ? 'no such file' : `cannot be read (${systemCode(error)})`;
    throw new CliError('no_input', `${path}: ${why}`);
  }
  return hasher.finish().slice('b3:'.length);
}

/** The default key: the only one that can sign files. */
export async function onlySigningKey(client: KmsClient): Promise<KeyInfo> {
  const found: KeyInfo[] = [];
  for await (const key of client.keys()) if (signsFiles(key)) found.push(key);
  const [only] = found;
  if (only !== undefined && found.length === 1) return only;
  const hint = only === undefined ? 'create one with `ron keys create`' : 'list them with `ron keys list`';
  throw new CliError('usage', `--key is required: found ${found.length} signing keys; ${hint}`);
}

function signsFiles({ kid, state, public: { pubkey_b64, parts }, attestation_class, alg }: KeyInfo): boolean {
  if (state !== 'enabled' || kid.split('/')[1] === 'raw') return false;
  return alg !== 'x-wing' && attestation_class !== 'imported' && (pubkey_b64 ?? parts) !== undefined;
}
