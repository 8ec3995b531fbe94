/** Reads the metrics of a running service. */
import { reach } from '@ron/client/node';
import { Deadline } from '@ron/kernel/core';

const CALL_MS = 5000;

/** The text of `/metrics`. `service_url` may be `unix:PATH`. */
export async function metricsOf(service_url: string, signal: AbortSignal, pin?: string): Promise<string> {
  const { url, fetch } = reach(service_url, pin);
  const options = { headers: {}, redirect: 'error', cache: 'no-store', credentials: 'omit' } as const;
  using deadline = Deadline.after('metrics', CALL_MS, { signal });
  return await deadline.run(async (within) => {
    const response = await fetch(new URL('/metrics', url), { method: 'GET', signal: within, ...options });
    return await new Response(response.body as never).text();
  });
}

/** The sum of all series with a name, or the value of one series with its labels. */
export function sumOf(metrics: string, series: string): number {
  return metrics
    .split('\n')
    .filter((line) => line.startsWith(`${series} `) || line.startsWith(`${series}{`))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
}

/** The values of a metric with one label, by the value of the label. */
export function byLabel(metrics: string, name: string, label: string): Record<string, number> {
  const found: Record<string, number> = {};
  const prefix = `${name}{${label}="`;
  for (const line of metrics.split('\n')) {
    if (!line.startsWith(prefix)) continue;
    found[line.slice(prefix.length, line.indexOf('"', prefix.length))] = Number(line.slice(line.lastIndexOf(' ') + 1));
  }
  return found;
}
