/** `ron doctor`: checks the machine and the node, and names the action for each problem. */
import type { TokenVerdict } from '@ron/proto';
import { command, CONNECTION_OPTIONS } from '../command.ts';
import type { Finding } from '../doctor/finding.ts';
import type { Exit } from '../exits.ts';
import type { Io } from '../io.ts';
import { homeOf, isAlive, readState, type Home } from '../home.ts';

export default command({
  name: 'doctor',
  usage: 'doctor [--dir DIR]',
  about:
    'Checks Node, the directory, the clock, the limit on open files, the capabilities of the owner and of the services, the\n' +
    'services or their ports, the load and the peers of index, names that expire within 30 days, the packs and the disk of\n' +
    'edge, the topics, the dead letters, the ledgers and the disk of mailbox, and the providers, the secrets, the spool, the\n' +
    'receipts and the brownout of interop. Changes nothing.',
  options: { dir: CONNECTION_OPTIONS.dir },
  args: [0, 0],
  examples: { 'ron doctor': 'list problems, each with the action that resolves it' },
  async run({ values, io, signal }): Promise<Exit> {
    const findings = await examine(homeOf(values, io), io, signal);
    const lines = findings.map(
      ({ level, what, fix }) => `${level.padEnd(4)}  ${what}${fix === undefined ? '' : `: ${fix}`}`,
    );
    io.result(lines.join('\n'), { findings });
    return findings.some(({ level }) => level === 'fail') ? 'failed' : 'ok';
  },
});

async function examine(home: Home, io: Io, signal: AbortSignal): Promise<Finding[]> {
  const [
    machine,
    capabilities,
    services,
    audit,
    { checkKeyFiles },
    { checkVolumes },
    { SERVICE_TABLE },
    { passportVerdict },
    limits,
    { checkIndex },
    { checkEdge, checkCacheDisk, checkPackFiles },
    { checkMailbox, checkMailboxDisk },
    { checkInterop, checkInteropDirectory },
  ] = await Promise.all([
    import('../doctor/machine.ts'),
    import('../doctor/capabilities.ts'),
    import('../doctor/services.ts'),
    import('../doctor/audit.ts'),
    import('../doctor/keys.ts'),
    import('../doctor/volumes.ts'),
    import('../up/table/services.ts'),
    import('../passport-verdict.ts'),
    import('../doctor/limits.ts'),
    import('../doctor/index-service.ts'),
    import('../doctor/edge-service.ts'),
    import('../doctor/mailbox-service.ts'),
    import('../doctor/interop-service.ts'),
  ]);
  const recorded = await readState(home);
  const stated = recorded !== undefined && isAlive(recorded.pid) ? recorded.services : undefined;
  const found = stated ?? (await services.findRunning(home, SERVICE_TABLE, signal));
  const isRunning = found !== undefined;
  const expected = isRunning ? SERVICE_TABLE.filter(({ name }) => found[name] !== undefined) : SERVICE_TABLE;
  // A service that fails to start has a pid, but no URL.
  const pids = stated === undefined ? {} : recorded!.pids;
  const planned = SERVICE_TABLE.filter(({ name }) => expected.some((each) => each.name === name) || name in pids);
  const verify = (token: string): Promise<TokenVerdict | undefined> => passportVerdict(home, token, io, signal);
  const common = [
    machine.checkNode(),
    ...(await machine.checkDirectory(home)),
    ...(await capabilities.checkRootCapability(home, expected, isRunning, verify)),
    ...(await capabilities.checkServiceCapabilities(home, expected, isRunning)),
    ...(await checkKeyFiles(home, planned, isRunning, signal)),
    ...(await audit.checkAuditLog(home, signal)),
    ...(await limits.checkClock(home)),
  ];
  if (!isRunning) {
    const edge = [...(await checkPackFiles(home)), ...(await checkCacheDisk(home))];
    const own = [
      ...(await checkVolumes(home)),
      ...edge,
      ...(await checkMailboxDisk(home)),
      ...(await checkInteropDirectory(home)),
    ];
    return [...common, ...own, ...(await services.checkPorts(SERVICE_TABLE))];
  }
  return [
    ...common,
    ...(stated === undefined ? [services.unrecorded(home)] : services.notStarted(recorded!)),
    ...(await limits.checkOpenFiles(expected, pids)),
    ...(await services.checkServices(home, expected, found, signal)),
    ...(found.index === undefined ? [] : await checkIndex(home, io, signal)),
    ...(found.edge === undefined ? [] : await checkEdge(home, io, signal)),
    ...(found.mailbox === undefined ? [] : await checkMailbox(home, io, signal)),
    ...(found.interop === undefined ? [] : await checkInterop(home, found.interop, io, signal)),
  ];
}
