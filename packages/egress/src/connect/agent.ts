/**
 * The connection pool: an `http.Agent` of its own whose connections come from the `Dialer`.
 *
 * Contract: one agent serves both schemes; a connection is reused only for its own origin. Proxy variables of
 * the environment are ignored. A connection is kept for another request only if `canKeep` allows it. Bytes that a server sends
 * without a request close a kept connection if they reached this host before its next request began: Node's agent reads
 * idle connections, and `readIdle` lets it read once more before a request takes one. Bytes that arrive later cannot be
 * distinguished from the answer to that request.
 * Bound: `idle_sockets_max` idle connections, for `idle_socket_ms` each; `Slots` bounds those in use.
 * Overflow: a connection beyond the idle bound is closed after its answer.
 *
 *   const agent = new EgressAgent({ dial, canKeep: (socket) => dialer.isOpened(socket), limits });
 *   await agent.readIdle(target.origin);
 *   request({ agent, target, total, ... });
 */
import { Agent, type AgentOptions, type ClientRequestArgs } from '@ron/kernel/http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { sched, type Deadline } from '@ron/kernel/core';
import type { Target } from '../address/target.ts';
import type { EgressLimits } from '../limits.ts';

/** Request options that the agent reads. Node passes unknown options through to `createConnection`. */
export interface DialOptions extends ClientRequestArgs {
  readonly target: Target;
  readonly total: Deadline;
}

type Created = (error: Error | null, stream: Duplex) => void;

export interface EgressAgentInit {
  readonly dial: (target: Target, total: Deadline) => Promise<Socket>;
  /** Whether a connection may serve another request. */
  readonly canKeep: (socket: object) => boolean;
  readonly limits: EgressLimits;
}

/** Rounds of `readIdle` in which other requests may take the connections that it has read. */
const ROUNDS_MAX = 4;

const kIdleSince = Symbol('ron.idle_since');

/** An idle connection, and the turn after which it became idle. */
interface Kept extends Duplex {
  [kIdleSince]?: number;
}

export class EgressAgent extends Agent {
  readonly #init: EgressAgentInit;
  /** Turns of `readIdle` that have begun. */
  #turns = 0;
  /** The turn that has not begun. */
  #next_turn: Promise<number> | undefined;

  constructor(init: EgressAgentInit) {
    const { idle_socket_ms, idle_sockets_max } = init.limits;
    // `readIdle` relies on the order: a request takes the connection that has been idle longest.
    const options: AgentOptions = { timeout: idle_socket_ms, maxFreeSockets: idle_sockets_max, scheduling: 'fifo' };
    super({ ...options, keepAlive: idle_sockets_max > 0 });
    this.#init = init;
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
      socket = await this.#init.dial(target, total);
    } catch (error) {
      (done as ((error: unknown) => void) | undefined)?.(error);
      return;
    }
    done?.(null, socket);
  }

  override keepSocketAlive(socket: Duplex): boolean {
    (socket as Kept)[kIdleSince] = this.#turns;
    // The types say void; Node's agent gives a boolean, false when the server announced to close the connection.
    const isKept = super.keepSocketAlive(socket) as unknown as boolean;
    const { canKeep, limits } = this.#init;
    return isKept && this.idle < limits.idle_sockets_max && canKeep(socket);
  }

  /**
   * Call it right before a request to the origin: the connection that the request then takes has been read after this
   * call began. When others keep taking such connections, the rest is closed and the request dials.
   */
  async readIdle(origin: string): Promise<void> {
    for (let round = 0; round < ROUNDS_MAX; round++) {
      if ((this.freeSockets[origin]?.length ?? 0) === 0) return;
      const turn = await (this.#next_turn ??= this.#readAll());
      const next = this.freeSockets[origin]?.find((socket) => !socket.destroyed);
      if (next === undefined || (next as Kept)[kIdleSince]! < turn) return;
    }
    this.closeIdle(origin);
  }

  /** Lets all idle connections be read; returns the turn in which they were. Requests that come before it begins share it. */
  async #readAll(): Promise<number> {
    // The first pause may end in this turn of the event loop; sockets are read between the first and the second.
    await sched.pause('egress_idle_read');
    this.#next_turn = undefined;
    const turn = (this.#turns += 1);
    await sched.pause('egress_idle_read');
    return turn;
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
