/** `ron net invite`: creates the network at the first invitation, and writes the addresses and the key to a file. */
import { IndexClient } from '@ron/client';
import { Deadline, sleep } from '@ron/kernel/core';
import type { DhtStatusDto } from '@ron/proto';
import type { CONNECTION_OPTIONS, Invocation } from '../command.ts';
import { CliError } from '../exits.ts';
import { homeOf, inAmnesia, isAlive, readState, type NodeState } from '../home.ts';
import { withClient } from '../service-client.ts';
import { ADDRESSES_MAX, hostOf, inviteText, isPeerAddress, writeInvite } from './invite-file.ts';
import { ensureNetworkKey, isLoopback, networkKey } from './network.ts';

/** The restart of index, and the load of the DHT code. */
const JOINED_MS = 20_000;
const POLL_MS = 100;
const STANDARD_OUTPUT = '-';

type InviteInvocation = Invocation<typeof CONNECTION_OPTIONS>;

export async function invite(invocation: InviteInvocation, output: string): Promise<void> {
  const { values, io, signal } = invocation;
  const lasting = homeOf(values, io);
  const state = await readState(lasting);
  const home = state?.amnesia === true ? inAmnesia(lasting) : lasting;
  const found = await statusOf(invocation);
  if (found.mode !== 'join' && state?.amnesia === true) {
    throw new CliError(
      'failed',
      'this node has joined no network, and index would lose its names at the restart that joins one: stop the node and ' +
        'start it with `ron up --amnesia --network`',
    );
  }
  const network_key = found.mode === 'join' ? await networkKey(home) : await ensureNetworkKey(home);
  if (network_key === undefined)
    throw new CliError('no_input', `${home.net.key} does not exist: run this command in the directory of the node`);
  const status = found.mode === 'join' ? found : await joined(invocation, state);
  const addresses = status.listening.filter(isPeerAddress).slice(0, ADDRESSES_MAX);
  if (addresses.length === 0)
    throw new CliError('unavailable', `the DHT of this node does not listen yet: ${status.problem ?? 'try again'}`);
  signal.throwIfAborted();
  if (output === STANDARD_OUTPUT) {
    const text = inviteText({ addresses, network_key });
    io.result(text, JSON.parse(text));
  } else await writeInvite(output, { addresses, network_key });
  if (addresses.every((address) => isLoopback(hostOf(address))))
    io.note('only nodes on this machine can use it; for others, start this node with --host IP');
  if (output === STANDARD_OUTPUT) return;
  io.result(`${output}: give it to the other node, which joins with \`ron up --join ${output}\``, {
    file: output,
    addresses,
  });
}

const statusOf = ({ values, io, signal }: InviteInvocation): Promise<DhtStatusDto> =>
  withClient(
    'index',
    (init) => new IndexClient(init),
    values,
    io,
    signal,
    (index) => index.dhtStatus({ signal }),
  );

/** Makes the running node join its new network, and waits until it listens for peers. */
async function joined(invocation: InviteInvocation, state: NodeState | undefined): Promise<DhtStatusDto> {
  if (state === undefined || !isAlive(state.pid))
    throw new CliError('unavailable', 'the node is not running: start it with `ron up`, which joins the new network');
  // `ron up` restarts index with its new configuration.
  process.kill(state.pid, 'SIGHUP');
  using deadline = Deadline.after('net.invite', JOINED_MS, { signal: invocation.signal });
  for (;;) {
    // The socket is absent during the restart.
    const status = await statusOf(invocation).catch(() => invocation.signal.throwIfAborted());
    if (status?.mode === 'join' && status.listening.length > 0) return status;
    if (deadline.remaining_ms <= 0)
      throw new CliError('unavailable', 'index did not join its new network in time: see its log');
    await sleep(POLL_MS, invocation.signal, 'net.invite');
  }
}
