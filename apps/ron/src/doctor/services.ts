/** Checks of the services of a node: those that run, or the ports of those that do not. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import { sched } from '@ron/kernel/core';
import { defaultPort } from '@ron/proto';
import { humanDuration } from '../format.ts';
import type { Home, NodeState } from '../home.ts';
import { readinessOf } from '../readiness.ts';
import { readSecret } from '../secret-file.ts';
import { startOrder } from '../up/table/call-graph.ts';
import type { ServiceEntry } from '../up/table/service-entry.ts';
import { messageOf, type Finding } from './finding.ts';

const URL_BYTES_MAX = 4096;

/** Readiness of each service that runs, callees first: a cause stands above its effects. */
export async function checkServices(
  running: readonly ServiceEntry[],
  state: NodeState,
  signal: AbortSignal,
): Promise<Finding[]> {
  return await Promise.all(
    startOrder(running).map(async (name): Promise<Finding> => {
      const began_ms = sched.now_ms();
      const url = state.services[name]!;
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

/** Whether callers find each running callee where it runs. */
export async function checkAddresses(
  home: Home,
  running: readonly ServiceEntry[],
  state: NodeState,
): Promise<Finding[]> {
  const callees = running.filter(({ name }) => running.some(({ calls }) => calls.some(({ to }) => to === name)));
  const findings = await Promise.all(
    callees.map(async ({ name }): Promise<Finding[]> => {
      const path = home.of(name).url;
      const fix = 'stop `ron up` and start it again, which writes the file';
      try {
        const found = (await readSecret(path, URL_BYTES_MAX))?.trim();
        if (found === state.services[name]) return [];
        const states = found === undefined ? 'is missing' : `states ${found}, but ${name} runs elsewhere`;
        return [{ level: 'fail', what: `${path} ${states}`, fix }];
      } catch (error) {
        return [{ level: 'fail', what: `address of ${name}`, fix: messageOf(error) }];
      }
    }),
  );
  return findings.flat();
}

/** Of a node that does not run. */
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
      if (free) return { level: 'ok', what: `${name} does not run; its port ${port} is free` };
      const fix = 'use --base-port, or stop the process that has it';
      return { level: 'warn', what: `port ${port} of ${name} is taken`, fix };
    }),
  );
}
