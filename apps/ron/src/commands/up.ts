/** `ron up`: the network on this machine. */
import { command } from '../command.ts';
import { PLAN_OPTIONS } from '../up/plan.ts';

export default command({
  name: 'up',
  usage: 'up [--dir DIR] [--base-port PORT] [--only A,B] [--set SERVICE.KEY=VALUE ...]',
  about:
    'Starts every service as a process of its own and watches over them: one that crashes is started again. Data, keys and\n' +
    'logs are below the directory; root.cap there is the capability with which the other commands work. Ctrl-C lets work in\n' +
    'hand finish, a second one does not. SIGHUP makes the services read their configuration again.',
  options: PLAN_OPTIONS,
  args: [0, 0],
  ownSignals: true,
  examples: {
    'ron up': 'in ./.ron, storage at http://127.0.0.1:7101',
    'ron up --dir /srv/ron --base-port 8100': 'elsewhere',
    'ron up --set storage.storage.cache_bytes=1GiB': 'with a larger cache',
    'ron up --amnesia': 'in memory only',
  },
  async run({ values, io }) {
    const [{ runUp }, { SERVICE_TABLE }] = await Promise.all([
      import('../up/run-up.ts'),
      import('../up/table/services.ts'),
    ]);
    return await runUp(values, io, SERVICE_TABLE);
  },
});
