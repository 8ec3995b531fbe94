/**
 * An invitation to a network: the addresses of members and the network key, as JSON in a file of mode 0600.
 *
 *     {"ron_invite":1,"addresses":["/ip4/192.0.2.1/tcp/7108/p2p/12D3KooW..."],"network_key":"<64 hex digits>"}
 *
 * Contract: the holder of the file can join the network, so a file that other users can read is refused. A malformed file is
 * refused, and the error never quotes it. Bound: `ADDRESSES_MAX` addresses, 64 KiB.
 */
import { parsePeerAddress } from '@ron/proto';
import { readSecretFile, writeSecret } from '@ron/log/secret-file';
import { CliError, messageOf, systemCode } from '../exits.ts';

export interface Invite {
  /** Multiaddrs with peer ids. */
  readonly addresses: readonly string[];
  /** 32 bytes in hex. */
  readonly network_key: string;
}

export const ADDRESSES_MAX = 64;
const VERSION = 1;
const KEY = /^[0-9a-f]{64}$/;

/** With an IP address: the holder of an invitation cannot check who answers for a name. */
export const isPeerAddress = (text: unknown): text is string =>
  typeof text === 'string' && parsePeerAddress(text)?.kind === 'ip';

/** The IP address in a multiaddr with a peer id. */
export const hostOf = (address: string): string => parsePeerAddress(address)?.host ?? '';

export async function readInvite(path: string): Promise<Invite> {
  let text: string;
  try {
    text = await readSecretFile(path);
  } catch (error) {
    throw new CliError('no_input', messageOf(error));
  }
  const invite = parseInvite(text);
  if (invite === undefined)
    throw new CliError('no_input', `${path} is not an invitation: make one with \`ron net invite\``);
  return invite;
}

export const inviteText = ({ addresses, network_key }: Invite): string =>
  JSON.stringify({ ron_invite: VERSION, addresses, network_key });

export async function writeInvite(path: string, invite: Invite): Promise<void> {
  try {
    await writeSecret(path, `${inviteText(invite)}\n`);
  } catch (error) {
    const code = systemCode(error);
    const why = code === 'ENOENT' ? 'its directory does not exist' : (code ?? messageOf(error));
    throw new CliError('no_output', `cannot write ${path}: ${why}`);
  }
}

export function parseInvite(text: string): Invite | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  const { ron_invite, addresses, network_key } = (value ?? {}) as Record<string, unknown>;
  if (ron_invite !== VERSION || !Array.isArray(addresses) || addresses.length > ADDRESSES_MAX) return undefined;
  if (addresses.length === 0 || !addresses.every(isPeerAddress)) return undefined;
  return typeof network_key === 'string' && KEY.test(network_key) ? { addresses, network_key } : undefined;
}
