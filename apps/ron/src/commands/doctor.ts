/** `ron doctor`: looks at the machine and the node, and says what to do. */
import { access, constants, stat, statfs } from 'node:fs/promises';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { once } from 'node:events';
import { sched } from '@ron/kernel/core';
import { defaultPort } from '@ron/proto';
import { readCapabilities } from '../capability-file.ts';
import { command, REACH_OPTIONS } from '../command.ts';
import type { Exit } from '../exits.ts';
import { humanDuration, humanSize } from '../format.ts';
import { homeOf, isAlive, readState, type Home, type NodeState } from '../home.ts';
import { readinessOf } from '../readiness.ts';
import { knownVolumes } from '../up/known-volumes.ts';
import { SERVICE_TABLE } from '../up/services.ts';

const NODE_MAJOR_MIN = 26;
const FREE_BYTES_MIN = 1024 ** 3;

interface Finding {
  readonly level: 'ok' | 'warn' | 'fail';
  readonly what: string;
  /** What to do about it. */
  readonly fix?: string;
}

export default command({
  name: 'doctor',
  usage: 'doctor [--dir DIR]',
  about: 'Checks Node, the directory, the keys, the capability, and the services or their ports. Changes nothing.',
  options: { dir: REACH_OPTIONS.dir },
  args: [0, 0],
  examples: { 'ron doctor': 'what is wrong here, and what to do' },
  async run({ values, io, signal }): Promise<Exit> {
    const home = homeOf(values, io);
    const state = await readState(home);
    const running = state !== undefined && isAlive(state.pid) ? state : undefined;
    const findings = [
      checkNode(),
      ...(await checkDirectory(home)),
      await checkCapability(home),
      ...(running === undefined
        ? [...(await checkVolumes(home)), ...(await checkPorts())]
        : await checkServices(running, signal)),
    ];
    const lines = findings.map(
      ({ level, what, fix }) => `${level.padEnd(4)}  ${what}${fix === undefined ? '' : `: ${fix}`}`,
    );
    io.result(lines.join('\n'), { findings });
    return findings.some(({ level }) => level === 'fail') ? 'failed' : 'ok';
  },
});

function checkNode(): Finding {
  const { node } = process.versions;
  if (Number.parseInt(node, 10) >= NODE_MAJOR_MIN) return { level: 'ok', what: `Node ${node}` };
  return { level: 'fail', what: `Node ${node}`, fix: `version ${NODE_MAJOR_MIN} is needed; npm install brings it` };
}

async function checkDirectory(home: Home): Promise<Finding[]> {
  const found = await stat(home.dir).catch(() => undefined);
  const place = found === undefined ? await existingAbove(home.dir) : home.dir;
  const findings: Finding[] = [];
  if (found === undefined) findings.push({ level: 'ok', what: `${home.dir} does not exist yet: \`ron up\` makes it` });
  else if (!found.isDirectory())
    return [{ level: 'fail', what: `${home.dir} is not a directory`, fix: 'choose another with --dir' }];
  else if ((found.mode & 0o077) !== 0)
    findings.push({ level: 'warn', what: `${home.dir} is open to others`, fix: `chmod 700 ${home.dir}` });
  else findings.push({ level: 'ok', what: home.dir });
  const writable = await access(place, constants.W_OK).then(
    () => true,
    () => false,
  );
  const isDirectory = (await stat(place)).isDirectory();
  if (!isDirectory) return [{ level: 'fail', what: `${place} is not a directory`, fix: 'choose another with --dir' }];
  if (!writable) findings.push({ level: 'fail', what: `${place} is not writable`, fix: 'choose another with --dir' });
  const { bavail, bsize } = await statfs(place);
  const free = bavail * bsize;
  const what = `${humanSize(free)} free`;
  findings.push(
    free >= FREE_BYTES_MIN
      ? { level: 'ok', what }
      : { level: 'warn', what, fix: 'storage refuses writes on a full disk' },
  );
  return findings;
}

/** Where it would be made: the nearest directory above it that is there. */
async function existingAbove(dir: string): Promise<string> {
  const above = dirname(dir);
  if (above === dir) return dir;
  const found = await stat(above).catch(() => undefined);
  return found === undefined ? await existingAbove(above) : above;
}

async function checkCapability(home: Home): Promise<Finding> {
  let token: string | undefined;
  try {
    const found = await readCapabilities(home.capability);
    token = typeof found === 'string' ? found : found?.storage;
  } catch (error) {
    return { level: 'fail', what: 'capability', fix: error instanceof Error ? error.message : String(error) };
  }
  if (token === undefined) return { level: 'ok', what: 'no capability yet: `ron up` makes it' };
  const { inspectToken } = await import('@ron/auth');
  const left_ms = inspectToken(token).expires_ms - sched.wall_ms();
  if (left_ms > 0) return { level: 'ok', what: `capability, good for ${Math.floor(left_ms / 86_400_000)} days` };
  return { level: 'fail', what: 'the capability has expired', fix: 'run `ron up`, which renews it' };
}

async function checkServices(state: NodeState, signal: AbortSignal): Promise<Finding[]> {
  return await Promise.all(
    Object.entries(state.services).map(async ([name, url]): Promise<Finding> => {
      const began_ms = sched.now_ms();
      const what = `${name} at ${url}`;
      try {
        const { isReady, reasons } = await readinessOf(url, signal);
        if (!isReady) return { level: 'fail', what: `${what} is not ready`, fix: reasons };
        if (reasons !== '') return { level: 'warn', what: `${what} is ready, but degraded`, fix: reasons };
        return { level: 'ok', what: `${what}, ready, ${humanDuration(sched.now_ms() - began_ms)}` };
      } catch {
        return { level: 'fail', what: `${what} does not answer`, fix: `see logs/${name}.log in the directory` };
      }
    }),
  );
}

/** Of a node that does not run: whether the directories of its volumes are there. */
async function checkVolumes(home: Home): Promise<Finding[]> {
  try {
    const known = knownVolumes(home.of('storage').volumes);
    return await Promise.all(
      known.map(async ({ item }): Promise<Finding> => {
        const dir = item.replace(/(?:@(?:domain|weight)=[^@]*|@draining)+$/, '');
        const found = await stat(join(dir, 'superblock')).catch(() => undefined);
        if (found !== undefined) return { level: 'ok', what: `volume ${dir}` };
        const fix = 'mount its disk, or after the start give it up with `ron volumes lose`';
        return { level: 'fail', what: `volume ${dir} is missing`, fix };
      }),
    );
  } catch (error) {
    return [{ level: 'fail', what: 'volumes of storage', fix: error instanceof Error ? error.message : String(error) }];
  }
}

async function checkPorts(): Promise<Finding[]> {
  return await Promise.all(
    SERVICE_TABLE.map(async ({ name }): Promise<Finding> => {
      const port = defaultPort(name);
      const server = createServer();
      const free = await Promise.race([
        once(server.listen(port, '127.0.0.1'), 'listening').then(() => true),
        once(server, 'error').then(() => false),
      ]).catch(() => false);
      server.close();
      if (free) return { level: 'ok', what: `${name} does not run; its port ${port} is free` };
      return { level: 'warn', what: `port ${port} of ${name} is taken`, fix: 'use --base-port, or stop what has it' };
    }),
  );
}
