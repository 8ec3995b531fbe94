/**
 * The key of the private network, which all members hold: 32 bytes in the format of libp2p
 * (`/key/swarm/psk/1.0.0/`, `/base16/`, hex), in a file that only its owner can read.
 */
import { RonError } from '@ron/kernel';
import { readSecretFile } from '@ron/log/secret-file';

const FORMAT = /^\/key\/swarm\/psk\/1\.0\.0\/\n\/base16\/\n[0-9a-f]{64}$/;

/** Rejects with `not_ready` if the file is missing, open to other users or malformed; the error never shows the key. */
export async function readNetworkKey(path: string): Promise<Uint8Array> {
  const text = (await readSecretFile(path)).replaceAll('\r\n', '\n');
  if (!FORMAT.test(text)) throw new RonError('not_ready', `${path} does not contain a network key`, { op: 'key_file' });
  return Buffer.from(text);
}
