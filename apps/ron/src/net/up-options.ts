/** The flags of `ron up` that concern the network. */
import { isIP } from 'node:net';
import { usage } from '../args.ts';
import type { Option, Values } from '../command.ts';
import type { Home } from '../home.ts';
import type { Io } from '../io.ts';
import { hostOf, readInvite } from './invite-file.ts';
import { ensureNetworkKey, isLoopback, joinNetwork, LOOPBACK, readNetwork, saveNetwork } from './network.ts';
import { hostTowards } from './own-host.ts';

export const NETWORK_OPTIONS = {
  join: { type: 'string', value: 'FILE', doc: 'Join the network of an invitation. The node stays a member.' },
  network: {
    type: 'boolean',
    doc: 'Create a network if the node has joined none. Without it, the first `ron net invite` does, unless with --amnesia.',
  },
  host: {
    type: 'string',
    value: 'IP',
    doc: 'The address at which other nodes reach this one; beyond loopback it opens the reads of storage. Default: that of the last start, or the one towards the first node of the invitation.',
  },
} as const satisfies Record<string, Option>;

export interface RequestedNetwork {
  /** Stores the request in the directory of the node. */
  apply(home: Home, io: Io): Promise<void>;
}

/** Reads the invitation. Throws for one that cannot be used. */
export async function requestedNetwork({
  join,
  network,
  host,
}: Values<typeof NETWORK_OPTIONS>): Promise<RequestedNetwork> {
  if (host !== undefined && isIP(host) === 0) throw usage({ name: 'up' }, '--host must be an IP address');
  const invite = join === undefined ? undefined : await readInvite(join);
  return {
    async apply(home, io) {
      const known = readNetwork(home);
      const chosen = host ?? (invite === undefined ? known.host : await hostFor(known.host, invite.addresses));
      if (invite !== undefined) await joinNetwork(home, invite, chosen);
      else if (chosen !== known.host) await saveNetwork(home, { ...known, host: chosen });
      if (network === true) await ensureNetworkKey(home);
      if (isLoopback(chosen)) return;
      io.note(
        `other machines can reach this node at ${chosen}: this opens the reads of storage, without a capability, to ` +
          'every machine that can connect there',
      );
    },
  };
}

/** The address that the operator chose before; otherwise loopback if all members are there, or the one that reaches them. */
async function hostFor(known: string, addresses: readonly string[]): Promise<string> {
  if (!isLoopback(known)) return known;
  const remote = addresses.map(hostOf).find((host) => !isLoopback(host));
  return remote === undefined ? known : ((await hostTowards(remote)) ?? LOOPBACK);
}
