/** Checks the running services of a node, or the ports of a stopped one. */
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { access } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tryLock } from '@ron/log';
import { sched } from '@ron/kernel/core';
import { defaultPort } from '@ron/proto';
import { humanDuration } from '../format.ts';
import { socketUrl, type Home, type NodeState } from '../home.ts';
import { readinessOf } from '../readiness.ts';
import { startOrder } from '../up/table/call-graph.ts';
import type { ServiceEntry } from '../up/table/service-entry.ts';
import type { Finding } from './finding.ts';

type Urls = NodeState['services'];

/**
 * The running services of a node whose `node.json` is missing or damaged; undefined if none runs. A service must answer at
 * its socket, and the lock of the directory must be held. The lock is tried only if a service answers, so that a starting
 * `ron up` is not disturbed.
 */
export async function findRunning(
  home: Home,
  table: readonly ServiceEntry[],
  signal: AbortSignal,
): Promise<Urls | undefined> {
  const answering = await Promise.all(
    table.map(async ({ name }) => {
      try {
        const url = socketUrl(home, name);
        await readinessOf(url, signal);
        return [name, url] as const;
      } catch {
        return [name, undefined] as const;
      }
    }),
  );
  const found = answering.filter(([, url]) => url !== undefined);
  return found.length > 0 && (await isLocked(home)) ? Object.fromEntries(found) : undefined;
}

/** Does not create a lock file. */
async function isLocked(home: Home): Promise<boolean> {
  try {
    await access(home.lock);
    using lock = tryLock(home.lock);
    return lock === undefined;
  } catch {
    return false;
  }
}

export function unrecorded(home: Home): Finding {
  const fix = 'other commands cannot find the node; restart `ron up`, which writes the file';
  return { level: 'fail', what: `${home.state} is missing or damaged, but the node runs`, fix };
}

/** The services that `ron up` still tries to start. */
export function notStarted({ services, pids }: NodeState): Finding[] {
  const names = Object.keys(pids).filter((name) => services[name as keyof Urls] === undefined);
  const fix = (name: string): string => `read logs/${name}.log in the directory of the node`;
  return names.map((name) => ({ level: 'fail', what: `${name} fails to start and is restarted`, fix: fix(name) }));
}

/** Readiness of each running service, callees first: causes come before their effects. */
export async function checkServices(
  home: Home,
  running: readonly ServiceEntry[],
  urls: Urls,
  signal: AbortSignal,
): Promise<Finding[]> {
  return await Promise.all(
    startOrder(running).map(async (name): Promise<Finding> => {
      const began_ms = sched.now_ms();
      const url = urls[name]!;
      const what = `${name} at ${url}`;
      try {
        const { isReady, reasons } = await readinessOf(socketUrl(home, name), signal);
        if (!isReady) return { level: 'fail', what: `${what} is not ready`, fix: reasons };
        if (reasons !== '') return { level: 'warn', what: `${what} is ready, but degraded`, fix: reasons };
        return { level: 'ok', what: `${what}, ready, ${humanDuration(sched.now_ms() - began_ms)}` };
      } catch {
        const { socket } = home.of(name);
        const fix = existsSync(socket)
          ? `read logs/${name}.log in the directory of the node`
          : `${socket} is missing; restart \`ron up\``;
        return { level: 'fail', what: `${what} does not answer`, fix };
      }
    }),
  );
}

/** Checks the ports of a stopped node. */
export async function checkPorts(table: readonly ServiceEntry[]): Promise<Finding[]> {
  return await Promise.all(
    table.map(async ({ name }): Promise<Finding> => {
      const port = defaultPort(name);
      const server = createServer();
      const free = await Promise.race([
        once(server.listen(port, '127.0.0.1'), 'listening').then(() => true),
        once(server, 'error').then(() => false),
      ]).catch(() => false);
      server.close();
      if (free) return { level: 'ok', what: `${name} is stopped; its port ${port} is free` };
      const fix = 'choose other ports with --base-port, or stop the process that uses it';
      return { level: 'warn', what: `port ${port} of ${name} is in use`, fix };
    }),
  );
}
