/**
 * A TCP port that `ron up` keeps for a service, even while the service restarts.
 *
 * Contract: the port is bound here, and the service listens on the inherited socket. The socket stays open when the service
 * dies. Once the service has listened for the first time, no other process can bind the port, and connections wait in the
 * backlog until the next run accepts them. Before, a process that sets SO_REUSEADDR can bind the port and listen first;
 * then the service fails with EADDRINUSE, which `ron up` reports. This process never accepts a connection. Disposal
 * releases the port.
 */
import * as net from 'node:net';
import { CliError } from '../exits.ts';

/** A bound socket of Node's own `net`, which does not listen before `listen` is called. */
interface Handle {
  readonly fd: number;
  getsockname(out: { port?: number }): number;
  close(): void;
}

/** Node has no documented function that binds without accepting; `cluster` uses this one for the same purpose. */
const { _createServerHandle: createHandle } = net as unknown as {
  readonly _createServerHandle: (host: string, port: number, family: 4 | 6) => Handle | number;
};

export class HeldPort implements Disposable {
  readonly #handle: Handle;
  /** In URL form. */
  readonly host: string;
  readonly port: number;

  private constructor(handle: Handle, host: string, port: number) {
    this.#handle = handle;
    this.host = host;
    this.port = port;
  }

  /** Undefined if `bind` is not an IP address with a port: the service binds it itself then. */
  static bind(bind: string): HeldPort | undefined {
    const [, host = '', text] = /^(.+):(\d{1,5})$/.exec(bind) ?? [];
    const address = host.replace(/^\[(.*)\]$/, '$1');
    const family = net.isIP(address);
    if (family === 0) return undefined;
    const handle = createHandle(address, Number(text), family === 6 ? 6 : 4);
    if (typeof handle === 'number') throw refused(bind, handle);
    // A port that is in use is reported here, not by the bind.
    const found: { port?: number } = {};
    const error = handle.getsockname(found);
    if (error === 0 && found.port !== undefined) return new HeldPort(handle, host, found.port);
    handle.close();
    throw refused(bind, error);
  }

  get fd(): number {
    return this.#handle.fd;
  }

  get bind(): string {
    return `${this.host}:${this.port}`;
  }

  [Symbol.dispose](): void {
    this.#handle.close();
  }
}

function refused(bind: string, errno: number): CliError {
  const code = process.getBuiltinModule('node:util').getSystemErrorName(errno);
  const hint =
    code === 'EADDRINUSE'
      ? 'the port is in use, perhaps by another node: choose other ports with --base-port'
      : 'choose another address or port';
  return new CliError('unavailable', `cannot listen at ${bind} (${code}): ${hint}`, code);
}
