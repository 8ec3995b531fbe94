/** Debian's nats-server with JetStream on files, as a peer in the same run. It answers a publish before the sync: it syncs every two minutes. */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { TEST_TOOLS, whereIs } from '../packages/custody/src/testing/tools.ts';
import { freePort } from './nginx.ts';
import type { Server } from './servers.ts';
import { connect } from '@nats-io/transport-node';

export interface NatsServer extends Server {
  readonly child: ChildProcess;
}

export const natsProgram = (): string | undefined => whereIs(TEST_TOOLS.nats.needs[0]);

/** The directory is created. */
export async function startNats(dir: string): Promise<NatsServer> {
  const port = await freePort();
  mkdirSync(dir, { recursive: true });
  const child = spawn(natsProgram()!, ['-js', '-sd', dir, '-a', '127.0.0.1', '-p', String(port)], { stdio: 'ignore' });
  for (let tries = 0; tries < 100; tries++) {
    try {
      const connection = await connect({ port, reconnect: false });
      await connection.close();
      return { port, pid: child.pid!, child };
    } catch {
      await sleep(50);
    }
  }
  child.kill();
  throw new Error('nats-server does not answer');
}
