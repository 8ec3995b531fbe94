/**
 * Renders the tables of `docs/metrics.md`: starts each service in memory, reads its registered metrics, and stops it.
 *
 * Contract: a table lists every metric of a service with the help text of a scrape. Metrics of all services are listed once.
 * Bound: one service at a time, on a free loopback port, without writing to disk.
 */
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { createLog, Metrics, type Log, type MetricAbout } from '@ron/telemetry';
import { isConfigSchema, loadConfig, type ConfigSchema, type KeyTable } from '@ron/config';
import { measureProcess } from '@ron/service';

/** The start function that each `service.ts` exports, for example `startStorage`. */
type Start = (init: { config: unknown; metrics: Metrics; log: Log }) => Promise<AsyncDisposable>;

interface Shown {
  readonly service: string;
  readonly metrics: readonly MetricAbout[];
}

/** A passport URL adds the metrics of revocation polling. No server listens there. */
const FLAGS = {
  'amnesia.enabled': 'true',
  'server.bind': '127.0.0.1:0',
  'auth.passport_url': 'unix:/nonexistent/passport.sock',
};

export async function metricsBody(root: string): Promise<string> {
  const files = globSync('services/*/src/service.ts', { cwd: root }).toSorted();
  if (files.length === 0) return 'No service has declarations yet.';
  const process = new Metrics('process');
  measureProcess(process);
  const shown: Shown[] = [];
  for (const file of files) shown.push(await metricsOf(root, file));
  const ofAll = shown[0]!.metrics.filter((metric) => shown.every(({ metrics }) => metrics.some(isLike(metric))));
  const common = [...process.about(), ...ofAll.filter((metric) => !process.about().some(isLike(metric)))];
  const sections = shown.map(({ service, metrics }) => {
    const own = metrics.filter((metric) => !common.some(isLike(metric)));
    return [`## ${service}`, '', ...table(own)].join('\n');
  });
  return [['## Every service', '', ...table(common)].join('\n'), ...sections].join('\n\n');
}

async function metricsOf(root: string, file: string): Promise<Shown> {
  const folder = join(root, file, '..');
  const exported: Record<string, unknown> = await import(pathToFileURL(join(root, file)).href);
  const declared: Record<string, unknown> = await import(pathToFileURL(join(folder, 'config.ts')).href);
  const start = Object.entries(exported).find(([name]) => /^start[A-Z]/.test(name))?.[1];
  const schema = Object.values(declared).find(isConfigSchema);
  if (typeof start !== 'function' || schema === undefined) throw new Error(`${file} exports no start function`);
  const service = file.split('/')[1]!;
  const metrics = new Metrics(service);
  const log = createLog({ service, level: 'fatal' });
  await using _ = await (start as Start)({ config: configOf(schema), metrics, log });
  return { service, metrics: metrics.about() };
}

function configOf(schema: ConfigSchema<KeyTable>): unknown {
  const flags = Object.entries(FLAGS).filter(([key]) => Object.hasOwn(schema.keys, key));
  return loadConfig({ schema, flags: flags.map(([key, value]) => `--${key}=${value}`) });
}

const isLike = (metric: MetricAbout) => (each: MetricAbout) =>
  each.name === metric.name && each.labels.join() === metric.labels.join();

function table(metrics: readonly MetricAbout[]): string[] {
  const rows = metrics
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
    .map(({ name, kind, help, labels }) => {
      const labelled = labels.length === 0 ? '' : `{${labels.join(',')}}`;
      return `| \`${name}${labelled}\` | ${kind} | ${help.replaceAll('|', '\\|')} |`;
    });
  return ['| Metric | Kind | Meaning |', '| --- | --- | --- |', ...rows];
}
