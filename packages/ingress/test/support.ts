/** The example service, and listeners with other routes, in the process of the test. */
import { deriveAudienceKey, mintWith } from '@ron/auth';
import type { MintInit } from '@ron/auth';
import { Metrics } from '@ron/telemetry';
import { loadConfig } from '@ron/config';
import { createIngress } from '@ron/ingress';
import type { Ingress, IngressConfig, IngressInit, Route } from '@ron/ingress';
import { captureLog, metricIn, send } from '@ron/testkit/service';
import type { Reply, SendInit } from '@ron/testkit/service';
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
  const metrics = new Metrics('notes');
  const { log, lines } = captureLog('notes', 'warn');
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

export interface TestIngress extends AsyncDisposable {
  readonly ingress: Ingress;
  readonly url: string;
  readonly port: number;
  /** Log lines so far. */
  readonly lines: string[];
  metric(series: string): Promise<number>;
}

/** A listener with the routes of a test. */
export async function startIngress(init: Partial<IngressInit> & { routes: readonly Route[] }): Promise<TestIngress> {
  const metrics = new Metrics('x');
  const { log, lines } = captureLog('x', 'info');
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
