/** `ron up`: starts and supervises all services on this machine. */
import { command } from '../command.ts';
import { NETWORK_OPTIONS } from '../net/up-options.ts';
import { PLAN_OPTIONS } from '../up/plan.ts';

export default command({
  name: 'up',
  usage: 'up [--dir DIR] [--base-port PORT] [--join FILE | --network] [--only A,B] [--set SERVICE.KEY=VALUE ...]',
  about:
    'Starts each service as a process and restarts it if it crashes. Data, keys and logs are in the directory of the node;\n' +
    'root.cap there is the capability that the other commands use. Ctrl-C drains the services; a second one aborts them.\n' +
    'SIGHUP makes the services reload their configuration. --join FILE makes the node a member of the network of an\n' +
    'invitation, at this start and all later ones: its index then finds objects and names of the other nodes, and they find\n' +
    'its own.',
  options: { ...PLAN_OPTIONS, ...NETWORK_OPTIONS },
  args: [0, 0],
  ownSignals: true,
  examples: {
    'ron up': 'use ./.ron, storage at http://127.0.0.1:7101',
    'ron up --dir /srv/ron --base-port 8100': 'use another directory and other ports',
    'ron up --set storage.storage.cache_bytes=1GiB': 'use a larger cache',
    'ron up --join friends.invite': 'join the network of an invitation (see `ron net invite`)',
    'ron up --amnesia': 'keep everything in memory',
    'ron up --amnesia --network': 'also create a network, until the node stops',
  },
  async run({ values, io }) {
    const [{ runUp }, { SERVICE_TABLE }] = await Promise.all([
      import('../up/run-up.ts'),
      import('../up/table/services.ts'),
    ]);
    return await runUp(values, io, SERVICE_TABLE);
  },
});
