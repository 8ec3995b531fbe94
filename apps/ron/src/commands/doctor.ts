/** `ron doctor`: checks the machine and the node, and names the action for each problem. */
import { command, REACH_OPTIONS } from '../command.ts';
import type { Finding } from '../doctor/finding.ts';
import type { Exit } from '../exits.ts';
import { homeOf, isAlive, readState, type Home } from '../home.ts';

export default command({
  name: 'doctor',
  usage: 'doctor [--dir DIR]',
  about:
    'Checks Node, the directory, the capabilities of the owner and of the services, and the services or their ports.\n' +
    'Changes nothing.',
  options: { dir: REACH_OPTIONS.dir },
  args: [0, 0],
  examples: { 'ron doctor': 'what is wrong here, and what to do' },
  async run({ values, io, signal }): Promise<Exit> {
    const findings = await examine(homeOf(values, io), signal);
    const lines = findings.map(
      ({ level, what, fix }) => `${level.padEnd(4)}  ${what}${fix === undefined ? '' : `: ${fix}`}`,
    );
    io.result(lines.join('\n'), { findings });
    return findings.some(({ level }) => level === 'fail') ? 'failed' : 'ok';
  },
});

async function examine(home: Home, signal: AbortSignal): Promise<Finding[]> {
  const [machine, capabilities, services, { checkVolumes }, { SERVICE_TABLE }] = await Promise.all([
    import('../doctor/machine.ts'),
    import('../doctor/capabilities.ts'),
    import('../doctor/services.ts'),
    import('../doctor/volumes.ts'),
    import('../up/table/services.ts'),
  ]);
  const state = await readState(home);
  const common = [
    machine.checkNode(),
    ...(await machine.checkDirectory(home)),
    ...(await capabilities.checkRootCapability(home)),
  ];
  if (state === undefined || !isAlive(state.pid)) {
    return [
      ...common,
      ...(await capabilities.checkCallCapabilities(home, SERVICE_TABLE, false)),
      ...(await checkVolumes(home)),
      ...(await services.checkPorts(SERVICE_TABLE)),
    ];
  }
  const running = SERVICE_TABLE.filter(({ name }) => state.services[name] !== undefined);
  return [
    ...common,
    ...(await capabilities.checkCallCapabilities(home, running, true)),
    ...(await services.checkAddresses(home, running, state)),
    ...(await services.checkServices(running, state, signal)),
  ];
}
