/** The example service as a process: its answers, its metrics, and the resources that the operating system reports. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { cpuMs, descriptorsOf, eventually, MIB } from '@ron/testkit';
import { ServiceProcess, type Reply, type SendInit } from '@ron/testkit/service';
import { KEY_HEX, capability } from '../support.ts';

const MAIN = fileURLToPath(new URL('./target-main.ts', import.meta.url));

export class Target implements AsyncDisposable {
  readonly #process: ServiceProcess;
  readonly #wires: Wire[] = [];

  private constructor(process: ServiceProcess) {
    this.#process = process;
  }

  static async start(...flags: readonly string[]): Promise<Target> {
    const all = [`--notes.key_hex=${KEY_HEX}`, '--log.level=warn', ...flags];
    return new Target(await ServiceProcess.start({ main: MAIN, flags: all, node_flags: ['--expose-gc'], ipc: true }));
  }

  get url(): string {
    return this.#process.url;
  }

  get port(): number {
    return this.#process.port;
  }

  get pid(): number {
    return this.#process.pid;
  }

  get up(): boolean {
    return this.#process.running;
  }

  /** The end of its log. */
  get log(): string {
    return this.#process.log
      .slice(-100)
      .map((record) => JSON.stringify(record))
      .join('\n');
  }

  get rss_bytes(): number {
    return this.#process.resident_bytes;
  }

  /** Memory in use after a garbage collection. Resident memory also holds the free space of the heap. */
  async live_bytes(): Promise<number> {
    const { child } = this.#process;
    const answered = once(child, 'message', { signal: AbortSignal.timeout(10_000) });
    child.send('memory');
    const [{ heapUsed, external }] = (await answered) as [NodeJS.MemoryUsage];
    return heapUsed + external;
  }

  get cpu_ms(): number {
    return cpuMs(this.pid);
  }

  get descriptors(): number {
    return descriptorsOf(this.pid);
  }

  send(method: string, path: string, init?: SendInit): Promise<Reply> {
    return this.#process.send(method, path, init);
  }

  async put(name: string, body: Uint8Array | string): Promise<void> {
    const reply = await this.send('PUT', `/notes/${name}`, { body, headers: capability() });
    assert.ok(reply.status === 201 || reply.status === 200, reply.text);
  }

  metric(series: string): Promise<number> {
    return this.#process.metric(series);
  }

  /** Opens a connection, which is closed when the target is disposed. */
  async open(local?: string): Promise<Wire> {
    const wire = await Wire.open(this.port, local);
    this.#wires.push(wire);
    return wire;
  }

  /** The number of open descriptors once two samples in a row agree. */
  async settled(): Promise<number> {
    for (let last = -1; ;) {
      if (last === this.descriptors) return last;
      last = this.descriptors;
      await new Promise((resolve) => setTimeout(resolve, 150));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const wire of this.#wires) wire.destroy();
    await this.#process.kill();
  }
}

/** A raw socket: bytes are sent as written and kept as received. */
export class Wire {
  readonly socket: Socket;
  received = '';
  /** When it was closed, in `performance.now()` time. */
  closed_ms: number | undefined;
  #wake: (() => void) | undefined;

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.setNoDelay(true);
    socket.on('data', (chunk: Buffer) => {
      this.received += chunk.toString('latin1');
      this.#wake?.();
    });
    socket.on('error', () => undefined);
    socket.on('end', () => void socket.end());
    socket.on('close', () => {
      this.closed_ms = performance.now();
      this.#wake?.();
    });
  }

  static async open(port: number, local?: string): Promise<Wire> {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true, ...(local && { localAddress: local }) });
    const wire = new Wire(socket);
    await once(socket, 'connect');
    return wire;
  }

  get closed(): boolean {
    return this.closed_ms !== undefined;
  }

  write(text: string | Uint8Array): void {
    if (typeof text === 'string') this.socket.write(text, 'latin1');
    else this.socket.write(text);
  }

  /** Waits for `holds`, which is evaluated after each packet; false after the timeout or the end of the connection. */
  async until(holds: () => boolean, timeout_ms = 10_000): Promise<boolean> {
    const until_ms = performance.now() + timeout_ms;
    while (!holds()) {
      if (this.closed || performance.now() > until_ms) return false;
      let timer: NodeJS.Timeout | undefined;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        timer = setTimeout(resolve, until_ms - performance.now() + 1);
      });
      clearTimeout(timer);
      this.#wake = undefined;
    }
    return true;
  }

  /** Everything up to the end of the connection. Fails when that does not come within the timeout. */
  async rest(timeout_ms = 10_000): Promise<string> {
    await this.until(() => this.closed, timeout_ms);
    assert.ok(
      this.closed,
      `still open after ${timeout_ms} ms; received ${JSON.stringify(this.received.slice(0, 300))}`,
    );
    return this.received;
  }

  /** The status codes received so far. */
  get statuses(): number[] {
    return [...this.received.matchAll(/(?:^|\n|\}|[^\r\n])HTTP\/1\.1 (\d{3}) /g)].map((match) => Number(match[1]));
  }

  destroy(): void {
    this.socket.destroy();
  }
}

export interface AttackInit {
  /** How much resident memory may grow. Default 64 MiB: V8 enlarges the young generation of a busy process. */
  growth_bytes_max?: number;
  /** How much the memory in use after a garbage collection may grow. Default 8 MiB: compiled code and caches. */
  live_growth_bytes_max?: number;
  /** Series that must have increased. */
  counters?: readonly string[];
  /** Descriptors that may still be open afterwards. Default 1: the connection of the probe. */
  descriptors_max?: number;
}

/**
 * Runs an attack and asserts that the service stays up, answers health checks quickly, retains no memory and no
 * descriptor, and counts the attack in its metrics.
 */
export async function withstands(target: Target, attack: () => Promise<void>, init: AttackInit = {}): Promise<void> {
  const counters = init.counters ?? [];
  const counted = await Promise.all(counters.map((series) => target.metric(series)));
  const descriptors = await target.settled();
  const live_bytes = await target.live_bytes();
  const rss_bytes = target.rss_bytes;
  await attack();
  assert.ok(target.up, `the process died: ${target.log}`);
  const from_ms = performance.now();
  assert.equal((await target.send('GET', '/healthz')).status, 200);
  const health_ms = performance.now() - from_ms;
  assert.ok(health_ms < 2000, `health took ${health_ms} ms`);
  const limit = descriptors + (init.descriptors_max ?? 1);
  await eventually(`descriptors back to ${descriptors}`, () => target.descriptors <= limit);
  const growth_bytes = target.rss_bytes - rss_bytes;
  const growth_bytes_max = init.growth_bytes_max ?? 64 * MIB;
  assert.ok(growth_bytes < growth_bytes_max, `resident memory grew by ${Math.round(growth_bytes / MIB)} MiB`);
  const live_growth_bytes = (await target.live_bytes()) - live_bytes;
  const live_growth_bytes_max = init.live_growth_bytes_max ?? 8 * MIB;
  assert.ok(live_growth_bytes < live_growth_bytes_max, `memory in use grew by ${live_growth_bytes} bytes`);
  for (const [i, series] of counters.entries())
    assert.ok((await target.metric(series)) > counted[i]!, `${series} did not increase`);
  assert.doesNotMatch(target.log, /"level":(?:50|60|"error"|"fatal")/, 'an attack must not be logged as an error');
}

/** A request in wire format. */
export function raw(request_line: string, headers: readonly string[] = ['Host: localhost'], body = ''): string {
  return `${[request_line, ...headers].join('\r\n')}\r\n\r\n${body}`;
}

export const PROBE = raw('GET /greeting HTTP/1.1');
export const AUTHORIZATION = `Authorization: ${capability({ ttl_ms: 3_600_000 }).authorization}`;
