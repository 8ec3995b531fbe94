/** `ron net`: invites nodes to the network of this one, and shows its state. */
import { IndexClient } from '@ron/client';
import type { DhtStatusDto } from '@ron/proto';
import { usage } from '../args.ts';
import { command, CONNECTION_OPTIONS, type Invocation } from '../command.ts';
import { withClient } from '../service-client.ts';

const options = {
  output: {
    type: 'string',
    short: 'o',
    value: 'FILE',
    doc: 'The file of the invitation; - is standard output. Default: ron.invite.',
  },
  ...CONNECTION_OPTIONS,
} as const;

type NetInvocation = Invocation<typeof options>;

export default command({
  name: 'net',
  usage: 'net invite [-o FILE] | net status',
  about:
    'invite writes the addresses of this node and the key of its network to a file of mode 0600. Another node joins with\n' +
    '`ron up --join FILE`. The file is a secret: its holder can join. The first invitation creates the network,\n' +
    'except in amnesia, where `ron up --amnesia --network` does.\n' +
    'status shows whether the node has joined a network, its addresses, and its peers.',
  options,
  args: [1, 1],
  words: ['invite', 'status'],
  examples: {
    'ron net invite -o friends.invite': 'write an invitation',
    'ron net status': 'show the peers of this node',
  },
  async run(invocation) {
    const [verb] = invocation.args;
    if (verb === 'status') return await status(invocation);
    if (verb !== 'invite') throw usage({ name: 'net' }, 'expected `net invite` or `net status`');
    const { invite } = await import('../net/invite.ts');
    return await invite(invocation, invocation.values.output ?? 'ron.invite');
  },
});

async function status({ values, io, signal }: NetInvocation): Promise<void> {
  const found = await withClient(
    'index',
    (init) => new IndexClient(init),
    values,
    io,
    signal,
    (index) => index.dhtStatus({ signal }),
  );
  io.result(statusText(found), found);
}

function statusText({ mode, peer_id, listening, known, storage_url, problem, breakers }: DhtStatusDto): string {
  if (mode === 'standalone') return `standalone: this node has joined no network\npeer id     ${peer_id}`;
  return [
    `joined, ${known} ${known === 1 ? 'peer' : 'peers'} known${problem === null ? '' : `: ${problem}`}`,
    `peer id     ${peer_id}`,
    `listening   ${listening.map((address) => address.replace(/\/p2p\/.*$/, '')).join(', ') || 'no address yet'}`,
    `objects at  ${storage_url ?? 'no address: this node provides nothing'}`,
    ...breakers.map(({ target, state }) => `breaker     ${target} ${state.replace('_', '-')}`),
  ].join('\n');
}
