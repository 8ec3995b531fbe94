/** What the tests of the listener share: the example service in this process, and clients that hide nothing. */
import { once } from 'node:events';
import { request } from 'node:http';
import type { IncomingHttpHeaders } from 'node:http';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { deriveAudienceKey, mintWith } from '@ron/auth';
import type { MintInit } from '@ron/auth';
import { createLog, Metrics } from '@ron/telemetry';
import { loadConfig } from '@ron/config';
import { createIngress } from '@ron/ingress';
import type { Ingress, IngressConfig, IngressInit, Route } from '@ron/ingress';
import { schema } from './example/config.ts';
import { startNotes } from './example/service.ts';
import type { Notes } from './example/service.ts';

export const KEY_HEX = '07'.repeat(32);

export interface TestService extends AsyncDisposable {
  readonly notes: Notes;
  readonly url: string;
  readonly port: number;
  readonly metrics: Metrics;
  /** Log lines so far. */
  readonly lines: string[];
  send(method: string, path: string, init?: SendInit): Promise<Reply>;
  /** The value of one series, as a scrape shows it; 0 when it is not there. */
  metric(series: string): Promise<number>;
}

export async function startService(
  flags: readonly string[] = [],
  override: Partial<IngressConfig> = {},
): Promise<TestService> {
  const lines: string[] = [];
  const metrics = new Metrics('notes');
  const log = createLog({ service: 'notes', level: 'warn', sink: { write: (line) => void lines.push(line) } });
  const config = loadConfig({ schema, flags: [`--notes.key_hex=${KEY_HEX}`, ...flags] });
  const notes = await startNotes({ config, metrics, log, override: { sweep_ms: 20, ...override } });
  const { url } = notes;
  return {
    notes,
    url,
    port: Number(new URL(url).port),
    metrics,
    lines,
    send: (method, path, init) => send(url, method, path, init),
    metric: async (series) => metricIn(await metrics.text(), series),
    [Symbol.asyncDispose]: () => notes[Symbol.asyncDispose](),
  };
}

export function metricIn(text: string, series: string): number {
  const line = text.split('\n').find((candidate) => candidate.startsWith(`${series} `));
  return line === undefined ? 0 : Number(line.slice(series.length + 1));
}

export interface SendInit {
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
}

export interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  readonly text: string;
  /** Undefined unless the answer is a problem. */
  readonly problem: { code: string; corr_id: string; retryable: boolean; status: number; detail: string } | undefined;
}

/** One request on a connection of its own. Rejects when the answer is cut. */
export function send(url: string, method: string, path: string, init: SendInit = {}): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url);
    const req = request({ hostname, port, method, path, headers: { ...init.headers }, agent: false }, (res) => {
      const chunks: Buffer[] = [];
      res.on('data', (chunk: Buffer) => chunks.push(chunk));
      res.on('error', reject);
      res.on('end', () => resolve(reply(res.statusCode!, res.headers, Buffer.concat(chunks))));
    });
    req.on('error', reject);
    req.end(init.body);
  });
}

function reply(status: number, headers: IncomingHttpHeaders, body: Buffer): Reply {
  const text = body.toString();
  const is_problem = headers['content-type'] === 'application/problem+json' && text !== '';
  return { status, headers, body, text, problem: is_problem ? JSON.parse(text) : undefined };
}

export interface TestIngress extends AsyncDisposable {
  readonly ingress: Ingress;
  readonly url: string;
  readonly port: number;
  /** Log lines so far. */
  readonly lines: string[];
  metric(series: string): Promise<number>;
}

/** A listener with routes of the test's own. */
export async function startIngress(init: Partial<IngressInit> & { routes: readonly Route[] }): Promise<TestIngress> {
  const lines: string[] = [];
  const metrics = new Metrics('x');
  const log = createLog({ service: 'x', sink: { write: (line) => void lines.push(line) } });
  const { config, ...rest } = init;
  const ingress = await createIngress({
    service: 'x',
    version: '0',
    metrics,
    log,
    config: { sweep_ms: 20, ...config },
    ...rest,
  });
  const url = await ingress.listen();
  return {
    ingress,
    url,
    port: Number(new URL(url).port),
    lines,
    metric: async (series) => metricIn(await metrics.text(), series),
    [Symbol.asyncDispose]: () => ingress[Symbol.asyncDispose](),
  };
}

/** A socket that records everything that it receives. */
export class RawClient {
  readonly socket: Socket;
  received = '';
  closed = false;
  /** Why the connection was not closed in peace. */
  error: Error | undefined;

  constructor(port: number, localAddress?: string) {
    this.socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true, ...(localAddress && { localAddress }) });
    this.socket.setEncoding('latin1');
    this.socket.on('data', (text: string) => (this.received += text));
    this.socket.on('error', (error) => (this.error = error));
    this.socket.on('close', () => (this.closed = true));
    this.socket.on('end', () => this.socket.end());
  }

  static async open(port: number, localAddress?: string): Promise<RawClient> {
    const client = new RawClient(port, localAddress);
    await once(client.socket, 'connect');
    return client;
  }

  write(text: string): void {
    this.socket.write(text, 'latin1');
  }

  /** Everything up to the end of the connection. */
  async rest(): Promise<string> {
    if (!this.closed) await once(this.socket, 'close');
    return this.received;
  }

  /** Until the received text matches. */
  async until(pattern: RegExp): Promise<RegExpExecArray> {
    for (;;) {
      const match = pattern.exec(this.received);
      if (match !== null) return match;
      if (this.closed) throw new Error(`closed before ${pattern}: ${JSON.stringify(this.received)}`);
      const waiting = new AbortController();
      const { signal } = waiting;
      await Promise.race([once(this.socket, 'data', { signal }), once(this.socket, 'close', { signal })]);
      waiting.abort();
    }
  }

  destroy(): void {
    this.socket.destroy();
  }
}

/** The status and the problem of a raw answer. */
export function rawAnswer(text: string): {
  status: number;
  head: string;
  problem: Record<string, unknown> | undefined;
} {
  const end = text.indexOf('\r\n\r\n');
  const head = text.slice(0, end);
  const body = text.slice(end + 4);
  const is_problem = /content-type: application\/problem\+json/i.test(head);
  return { status: Number(head.split(' ')[1]), head, problem: is_problem ? JSON.parse(body) : undefined };
}

/** An `Authorization` header that the example service accepts. */
export function capability(init: Partial<MintInit> = {}): { authorization: string } {
  const key = deriveAudienceKey(Buffer.from(KEY_HEX, 'hex'), 'storage');
  const minted = mintWith(key, 'k1', {
    audience: 'storage',
    scopes: ['storage:put', 'storage:admin'],
    ttl_ms: 60_000,
    ...init,
  });
  return { authorization: `Bearer ${minted.token}` };
}

/** Waits until `holds`; polls often, gives up after `timeout_ms`. */
export async function eventually(
  what: string,
  holds: () => boolean | Promise<boolean>,
  timeout_ms = 10_000,
): Promise<void> {
  const until_ms = performance.now() + timeout_ms;
  while (!(await holds())) {
    if (performance.now() > until_ms) throw new Error(`never happened: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
