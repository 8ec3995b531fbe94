/**
 * The network that a node has joined: its key and bootstrap peers in the directory of the node.
 *
 * Contract: a node with a network key joins at each start. A node belongs to one network: an invitation to another one is
 * refused until the operator deletes the directory `net`. The key is created once, and printed by `ron net invite -o -` only.
 * Bound: `ADDRESSES_MAX` bootstrap peers, the newest first.
 */
import { existsSync, readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { makeDirectory } from '@ron/log';
import { readSecretFile, writeSecret } from '@ron/log/secret-file';
import { sched } from '@ron/kernel/core';
import { CliError, systemCode } from '../exits.ts';
import type { Home } from '../home.ts';
import { ADDRESSES_MAX, isPeerAddress, type Invite } from './invite-file.ts';

export const LOOPBACK = '127.0.0.1';
const KEY_BYTES = 32;
/** The format of libp2p. */
const KEY_HEAD = '/key/swarm/psk/1.0.0/\n/base16/\n';

export interface Network {
  /** The IP address at which other nodes reach this one. */
  readonly host: string;
  /** Multiaddrs with peer ids. */
  readonly bootstrap: readonly string[];
}

const NOTHING: Network = { host: LOOPBACK, bootstrap: [] };

/** Loopback without peers if the node has joined no network. A damaged file is an error: the node would be alone. */
export function readNetwork({ net }: Home): Network {
  let text: string;
  try {
    text = readFileSync(net.network, 'utf8');
  } catch (error) {
    if (systemCode(error) === 'ENOENT' || systemCode(error) === 'ENOTDIR') return NOTHING;
    throw new CliError('config', `cannot read ${net.network} (${systemCode(error)})`);
  }
  const network = parseNetwork(text);
  if (network !== undefined) return network;
  throw new CliError('config', `${net.network} is damaged: delete it and start with --join FILE`);
}

function parseNetwork(text: string): Network | undefined {
  try {
    const { host, bootstrap } = JSON.parse(text) as Partial<Network>;
    if (typeof host !== 'string' || isIP(host) === 0) return undefined;
    return Array.isArray(bootstrap) && bootstrap.every(isPeerAddress) ? { host, bootstrap } : undefined;
  } catch {
    return undefined;
  }
}

/** Whether the node has joined a network. */
export const hasNetwork = ({ net }: Home): boolean => existsSync(net.key);

/** The network key in hex; undefined if the node has joined no network. */
export const networkKey = ({ net }: Home): Promise<string | undefined> => readKey(net.key);

/** Returns the network key in hex; creates it if there is none. */
export async function ensureNetworkKey({ net }: Home): Promise<string> {
  const known = await readKey(net.key);
  if (known !== undefined) return known;
  const hex = Buffer.from(sched.randomBytes(KEY_BYTES)).toString('hex');
  await makeDirectory(net.dir);
  await writeSecret(net.key, `${KEY_HEAD}${hex}\n`);
  return hex;
}

/** Stores the key and the addresses of an invitation. */
export async function joinNetwork({ net, ...home }: Home, invite: Invite, host: string): Promise<void> {
  const known = await readKey(net.key);
  if (known !== undefined && known !== invite.network_key) {
    throw new CliError(
      'usage',
      `${home.dir} belongs to another network: to leave it, stop the node and delete ${net.dir}`,
    );
  }
  const { bootstrap } = readNetwork({ net, ...home });
  await makeDirectory(net.dir);
  if (known === undefined) await writeSecret(net.key, `${KEY_HEAD}${invite.network_key}\n`);
  const all = [...new Set([...invite.addresses, ...bootstrap])].slice(0, ADDRESSES_MAX);
  await saveNetwork({ net, ...home }, { host, bootstrap: all });
}

export async function saveNetwork({ net }: Home, network: Network): Promise<void> {
  await makeDirectory(net.dir);
  await writeSecret(net.network, `${JSON.stringify(network)}\n`);
}

async function readKey(path: string): Promise<string | undefined> {
  const text = await readSecretFile(path).catch((error: unknown) => {
    if (/ENOENT/.test(String(error))) return undefined;
    throw error;
  });
  if (text === undefined) return undefined;
  const hex = text.replaceAll('\r\n', '\n').slice(KEY_HEAD.length);
  if (text.startsWith(KEY_HEAD.trimEnd()) && /^[0-9a-f]{64}$/.test(hex)) return hex;
  throw new CliError('config', `${path} does not contain a network key`);
}

export const isLoopback = (host: string): boolean => host === '::1' || host.startsWith('127.');
