/** The load generator as a child process, and the CPU time that a server needs for its requests. */
import { fork, type ChildProcess } from 'node:child_process';
import { callChild } from './lib.ts';
import type { LoadOrder, LoadReport } from './http-load.ts';
import { cpu_us, path, type Server } from './servers.ts';

export class LoadGenerator {
  readonly child: ChildProcess = fork(path('./http-load.ts')).setMaxListeners(0);

  async run(order: LoadOrder): Promise<LoadReport> {
    return await callChild<LoadReport>(this.child, order);
  }

  async cpuPerRequest_us(server: Server, request: LoadOrder['request'], requests: number): Promise<number> {
    const before = cpu_us(server.pid);
    await this.run({ port: server.port, request: request!, connections: 16, requests });
    return (cpu_us(server.pid) - before) / requests;
  }
}
