/**
 * The connection pool: an `http.Agent` of its own whose connections come from the `Dialer`.
 *
 * Contract: one agent serves both schemes; a connection is reused only for its own origin. No proxy is used, whatever
 * the environment says. A connection that receives a byte while idle is destroyed (Node's agent does that), so bytes
 * sent ahead are never read as the next answer.
 * Bound: `idle_sockets_max` idle connections, for `idle_socket_ms` each; `Slots` bounds those in use.
 * Overflow: a connection beyond the idle bound is closed after its answer.
 *
 *   const agent = new EgressAgent((target, total) => dialer.dial(target, total), limits);
 *   request({ agent, target, total, ... });
 */
import { Agent, type AgentOptions, type ClientRequestArgs } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Deadline } from '@ron/kernel/core';
import type { Target } from '../address/target.ts';
import type { EgressLimits } from '../limits.ts';

/** Request options that the agent reads. Node passes unknown options through to `createConnection`. */
export interface DialOptions extends ClientRequestArgs {
  readonly target: Target;
  readonly total: Deadline;
}

type Created = (error: Error | null, stream: Duplex) => void;

export class EgressAgent extends Agent {
  readonly #dial: (target: Target, total: Deadline) => Promise<Socket>;
  readonly #idle_sockets_max: number;

  constructor(dial: (target: Target, total: Deadline) => Promise<Socket>, limits: EgressLimits) {
    const options: AgentOptions = { timeout: limits.idle_socket_ms, maxFreeSockets: limits.idle_sockets_max };
    super({ ...options, keepAlive: limits.idle_sockets_max > 0 });
    this.#dial = dial;
    this.#idle_sockets_max = limits.idle_sockets_max;
  }

  get idle(): number {
    return Object.values(this.freeSockets).reduce((count, sockets) => count + (sockets?.length ?? 0), 0);
  }

  override getName(options?: Partial<DialOptions>): string {
    return options?.target?.origin ?? '';
  }

  override createConnection(options: ClientRequestArgs, done?: Created): undefined {
    const { target, total } = options as DialOptions;
    void this.#create(target, total, done);
  }

  async #create(target: Target, total: Deadline, done: Created | undefined): Promise<void> {
    let socket: Socket;
    try {
      socket = await this.#dial(target, total);
    } catch (error) {
      (done as ((error: unknown) => void) | undefined)?.(error);
      return;
    }
    done?.(null, socket);
  }

  override keepSocketAlive(socket: Duplex): boolean {
    // The types say void; Node's agent gives a boolean, false when the server announced to close the connection.
    const isKept = super.keepSocketAlive(socket) as unknown as boolean;
    return isKept && this.idle < this.#idle_sockets_max;
  }

  /** Closes the idle connections to an origin. */
  closeIdle(origin: string): void {
    for (const socket of this.freeSockets[origin] ?? []) socket.destroy();
  }

  /** Closes all connections to an origin, those in use included. */
  closeAll(origin: string): void {
    this.closeIdle(origin);
    for (const socket of this.sockets[origin] ?? []) socket.destroy();
  }
}
